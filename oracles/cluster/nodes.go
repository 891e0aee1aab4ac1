package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// playedNodes says how many nodes to create, and what each of them has.
type playedNodes struct {
	kubeconfig, prefix, cpu, memory, version string
	count, pods, zones                       int
	extended                                 []string
	jobLife                                  time.Duration
}

func nodesCommand() *cobra.Command {
	var given playedNodes
	command := &cobra.Command{
		Use:   "nodes",
		Short: "create nodes and play their kubelets: leases, and pods that run, finish and end",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			until, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return given.play(until)
		},
	}
	flags := command.Flags()
	flags.StringVar(&given.kubeconfig, "kubeconfig", "", "the file that says how to reach the cluster")
	flags.IntVar(&given.count, "count", 3, "how many nodes to create")
	flags.StringVar(&given.prefix, "prefix", "node-", "what their names begin with")
	flags.StringVar(&given.cpu, "cpu", "32", "CPU of a node")
	flags.StringVar(&given.memory, "memory", "256Gi", "memory of a node")
	flags.IntVar(&given.pods, "pods", 110, "pods that a node takes")
	flags.IntVar(&given.zones, "zones", 3, "zones that nodes are in, in turn")
	flags.StringArrayVar(&given.extended, "resource", nil, "another resource of each node, as NAME=QUANTITY")
	flags.StringVar(&given.version, "kubelet-version", "v1.37.2", "the version that kubelets report")
	flags.DurationVar(&given.jobLife, "job-life", time.Second, "how long a pod of a Job runs before it succeeds")
	return command
}

func (given playedNodes) play(until context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", given.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst, config.UserAgent = -1, 0, "played-kubelets"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for number := range given.count {
		if err := given.create(until, client, number); err != nil {
			return err
		}
	}
	go renewLeases(until, client)
	return playPods(until, client, given.jobLife)
}

// create makes a node, ready for pods; one that exists stays as it is.
func (given playedNodes) create(until context.Context, client kubernetes.Interface, number int) error {
	name := given.prefix + strconv.Itoa(number)
	holds, err := given.resources()
	if err != nil {
		return err
	}
	node := &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
			core.LabelHostname: name, core.LabelOSStable: "linux", core.LabelArchStable: "amd64",
			core.LabelTopologyZone: fmt.Sprintf("zone-%d", number%max(given.zones, 1)), core.LabelTopologyRegion: "region-0",
		}},
		Spec: core.NodeSpec{ProviderID: "played://" + name},
		Status: core.NodeStatus{
			Capacity: holds, Allocatable: holds, Conditions: readyConditions(), Addresses: []core.NodeAddress{
				{Type: core.NodeInternalIP, Address: address(10, number)}, {Type: core.NodeHostName, Address: name},
			},
			NodeInfo: core.NodeSystemInfo{
				KubeletVersion: given.version, OperatingSystem: "linux", Architecture: "amd64", OSImage: "none", KernelVersion: "none",
				ContainerRuntimeVersion: "none://0",
			},
		},
	}
	if _, err = client.CoreV1().Nodes().Create(until, node, meta.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}

func (given playedNodes) resources() (core.ResourceList, error) {
	written := map[string]string{
		"cpu": given.cpu, "memory": given.memory, "pods": strconv.Itoa(given.pods), "ephemeral-storage": "256Gi",
		"hugepages-2Mi": "0", "hugepages-1Gi": "0",
	}
	for _, one := range given.extended {
		name, quantity, _ := strings.Cut(one, "=")
		written[name] = quantity
	}
	list := core.ResourceList{}
	for name, text := range written {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s of a node: %q: %w", name, text, err)
		}
		list[core.ResourceName(name)] = quantity
	}
	return list, nil
}

// isPlayed says whether this program plays the kubelet of a node; nodes that others make are theirs.
func isPlayed(node *core.Node) bool { return strings.HasPrefix(node.Spec.ProviderID, "played://") }

// offerCapacity makes allocatable what a client wrote into the capacity of a node, as its kubelet does.
func offerCapacity(until context.Context, client kubernetes.Interface, node *core.Node) {
	if !isPlayed(node) || equality.Semantic.DeepEqual(node.Status.Capacity, node.Status.Allocatable) {
		return
	}
	node = node.DeepCopy()
	node.Status.Allocatable = node.Status.Capacity
	_, err := client.CoreV1().Nodes().UpdateStatus(until, node, meta.UpdateOptions{})
	if err != nil && until.Err() == nil && !errors.IsConflict(err) {
		fmt.Fprintf(os.Stderr, "capacity of node %s: %v\n", node.Name, err)
	}
}

func readyConditions() []core.NodeCondition {
	now := meta.Now()
	condition := func(kind core.NodeConditionType, status core.ConditionStatus, reason string) core.NodeCondition {
		return core.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []core.NodeCondition{
		condition(core.NodeMemoryPressure, core.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(core.NodeDiskPressure, core.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(core.NodePIDPressure, core.ConditionFalse, "KubeletHasSufficientPID"),
		condition(core.NodeReady, core.ConditionTrue, "KubeletReady"),
	}
}

// address returns an address of 10.0.0.0/8 that nothing answers at: a block of 2^16 for nodes, the others for pods.
func address(block, number int) string {
	return fmt.Sprintf("10.%d.%d.%d", block, number>>8&255, number&255)
}

// renewLeases keeps the lease of every node of this program alive, by which its controllers know that a kubelet lives.
func renewLeases(until context.Context, client kubernetes.Interface) {
	for {
		nodes, err := client.CoreV1().Nodes().List(until, meta.ListOptions{ResourceVersion: "0"})
		if err == nil {
			for index := range nodes.Items {
				if isPlayed(&nodes.Items[index]) {
					renewLease(until, client, &nodes.Items[index])
				}
			}
		}
		select {
		case <-until.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}

func renewLease(until context.Context, client kubernetes.Interface, node *core.Node) {
	leases, now, seconds := client.CoordinationV1().Leases(core.NamespaceNodeLease), meta.NowMicro(), int32(40)
	lease, err := leases.Get(until, node.Name, meta.GetOptions{})
	switch {
	case err == nil:
		lease.Spec.RenewTime = &now
		_, err = leases.Update(until, lease, meta.UpdateOptions{})
	case errors.IsNotFound(err):
		lease = &coordination.Lease{
			ObjectMeta: meta.ObjectMeta{Name: node.Name, OwnerReferences: []meta.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			}},
			Spec: coordination.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}
		_, err = leases.Create(until, lease, meta.CreateOptions{})
	}
	if err != nil && until.Err() == nil && !errors.IsConflict(err) {
		fmt.Fprintf(os.Stderr, "lease of node %s: %v\n", node.Name, err)
	}
}
