// Command cluster is a Kubernetes control plane in one program: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler and kubectl of one release, and a player of nodes.
//
// The first argument names the program to be, unless the name by which this one is called does (a link `kubectl` to it
// is kubectl). Each is the upstream program, built from its own module; only `nodes` is written here.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJobs name time zones, and the machine may have no list of them

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerrors "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs are the commands that run until they are stopped; etcd and kubectl read their arguments themselves.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"nodes":                   nodesCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) {
		if len(os.Args) < 2 || !known(os.Args[1]) {
			fmt.Fprintln(os.Stderr, "name a program: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl or nodes")
			os.Exit(2)
		}
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	if os.Getenv("UNTIL_INPUT_ENDS") != "" && name != "kubectl" {
		go endWithInput()
	}
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlerrors.CheckErr(err)
		}
	default:
		os.Exit(cli.Run(programs[name]()))
	}
}

// endWithInput ends the program when the process that started it is gone: the other end of standard input closes then.
func endWithInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

func known(name string) bool {
	_, found := programs[name]
	return found || name == "etcd" || name == "kubectl"
}
