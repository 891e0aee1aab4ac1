// Command e2e runs Kubernetes' own end-to-end tests of scheduling, applications and API machinery against a cluster.
//
// Its flags are those of the upstream test program, such as -kubeconfig, -ginkgo.focus and -ginkgo.skip. It writes a JSON
// document a test to the file of -results: its name, labels, state, seconds, and how it failed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
	conformance "k8s.io/kubernetes/test/conformance/testdata"
	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	fixtures "k8s.io/kubernetes/test/fixtures"
	_ "k8s.io/kubernetes/test/utils/ktesting/format"
)

var results = flag.String("results", "", "the file to which results are written, a JSON document a line")

// result is what became of a test; tests that were not chosen are left out.
type result struct {
	Name    string   `json:"name"`
	Labels  []string `json:"labels,omitempty"`
	State   string   `json:"state"`
	Seconds float64  `json:"seconds"`
	Failure string   `json:"failure,omitempty"`
}

// outcome takes the place of testing.T, which there is none of outside `go test`.
type outcome struct{ failed bool }

func (one *outcome) Fail() { one.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	testfiles.AddFileSource(conformance.GetConformanceTestdataFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	logs.InitLogs()
	klog.EnableContextualLogging(true)
	framework.TestContext.IPFamily = "ipv4"
	gomega.RegisterFailHandler(framework.Fail)
	var end outcome
	suiteConfig, reporterConfig := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(&end, "Kubernetes' end-to-end tests", suiteConfig, reporterConfig)
	if end.failed {
		os.Exit(1)
	}
}

var _ = ginkgo.ReportAfterSuite("results", func(report ginkgo.Report) {
	if *results == "" {
		return
	}
	file, err := os.Create(*results)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer file.Close()
	lines := json.NewEncoder(file)
	for _, one := range report.SpecReports {
		if one.LeafNodeType != types.NodeTypeIt || one.State.Is(types.SpecStateSkipped) && one.Failure.Message == "" {
			continue
		}
		labels := one.Labels()
		slices.Sort(labels)
		message, _, _ := strings.Cut(strings.TrimSpace(one.Failure.Message), "\n\n")
		_ = lines.Encode(result{one.FullText(), labels, one.State.String(), one.RunTime.Seconds(), message})
	}
})
