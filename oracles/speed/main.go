// Speed measures how long kube-scheduler takes to place pods, in one process without an API server.
//
// Its argument is a folder: the objects of start.json exist when the measurement begins, and the pods of later.json arrive then,
// as events of the watch of pods. The whole scheduler runs: informers, cache, queue, its loop, 16 goroutines for each attempt,
// its usual sample of the nodes. A binding is noted, and nothing of it comes back. The answer is one JSON document: seconds by
// the clock and of CPU from the first event to the last decision, and the pods on each node.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler"
)

var limit = flag.Duration("limit", 2*time.Minute, "time by the clock after which the measurement ends with what is placed")

// decided keeps where each pod that arrives goes, and which of them fit nowhere.
type decided struct {
	lock   sync.Mutex
	wanted map[string]bool
	bound  map[string]string
	failed map[string]bool
	all    chan struct{}
	closed bool
}

func (kept *decided) note(pod, node string) {
	kept.lock.Lock()
	defer kept.lock.Unlock()
	if !kept.wanted[pod] {
		return
	}
	if node == "" {
		kept.failed[pod] = true
	} else {
		delete(kept.failed, pod)
		kept.bound[pod] = node
	}
	if !kept.closed && len(kept.bound)+len(kept.failed) >= len(kept.wanted) {
		kept.closed = true
		close(kept.all)
	}
}

func (kept *decided) answer() map[string]any {
	kept.lock.Lock()
	defer kept.lock.Unlock()
	on := map[string]int{}
	for _, node := range kept.bound {
		on[node]++
	}
	return map[string]any{"placed": len(kept.bound), "unplaced": len(kept.failed), "ended": kept.closed, "on": on}
}

// listen takes what the scheduler writes about pods.
func (kept *decided) listen(client *fake.Clientset) {
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		binding, is := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		if is {
			kept.note(binding.Namespace+"/"+binding.Name, binding.Target.Name)
		}
		return is, binding, nil
	})
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		kept.note(patch.GetNamespace()+"/"+patch.GetName(), "")
		return true, &v1.Pod{}, nil
	})
}

func main() {
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: speed [-limit TIME] FOLDER")
		os.Exit(2)
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	start, later := objects(flag.Arg(0), "start.json"), objects(flag.Arg(0), "later.json")
	kept := &decided{wanted: map[string]bool{}, bound: map[string]string{}, failed: map[string]bool{}, all: make(chan struct{})}
	for _, object := range later {
		pod := object.(*v1.Pod)
		kept.wanted[pod.Namespace+"/"+pod.Name] = true
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := fake.NewSimpleClientset(start...)
	kept.listen(client)
	arriving := watch.NewFakeWithChanSize(len(later), false)
	client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { return true, arriving, nil })
	sched := scheduling(ctx, client)
	placed, _ := sched.Cache.PodCount()
	runtime.GC()

	clock, cpu := time.Now(), used()
	go sched.Run(ctx)
	for _, pod := range later {
		arriving.Add(pod)
	}
	select {
	case <-kept.all:
	case <-time.After(*limit):
	}
	clockS, cpuS := time.Since(clock).Seconds(), used()-cpu

	answer := kept.answer()
	answer["clock_s"], answer["cpu_s"] = clockS, cpuS
	answer["nodes"], answer["before"] = sched.Cache.NodeCount(), placed
	must(json.NewEncoder(os.Stdout).Encode(answer))
}

// scheduling returns a scheduler with the usual configuration that knows what exists.
func scheduling(ctx context.Context, client *fake.Clientset) *scheduler.Scheduler {
	factory := scheduler.NewInformerFactory(client, 0, nil)
	silent := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	sched, err := scheduler.New(ctx, client, factory, nil, silent)
	must(err)
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			panic(fmt.Sprintf("%v: not read", kind))
		}
	}
	must(sched.WaitForHandlersSync(ctx))
	return sched
}

// objects reads a List, and fills in what an API server does.
func objects(folder, name string) (found []apiruntime.Object) {
	text, err := os.ReadFile(filepath.Join(folder, name))
	must(err)
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	must(json.Unmarshal(text, &list))
	for at, item := range list.Items {
		object, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(item, nil, nil)
		must(err)
		switch object := object.(type) {
		case *v1.Pod:
			corev1.SetObjectDefaults_Pod(object)
		case *v1.Node:
			corev1.SetObjectDefaults_Node(object)
		}
		must(meta.NewAccessor().SetResourceVersion(object, fmt.Sprint(at+1)))
		found = append(found, object)
	}
	return found
}

// used returns the seconds of CPU of this process so far.
func used() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
