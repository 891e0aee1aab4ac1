package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// kubelets play what kubelets do for pods: no container runs, and every pod does what it should.
type kubelets struct {
	client  kubernetes.Interface
	nodes   listers.NodeLister
	pods    cache.Indexer
	queue   workqueue.TypedRateLimitingInterface[string]
	jobLife time.Duration
	given   atomic.Int64 // addresses given to pods
}

// playPods plays until the context ends.
func playPods(until context.Context, client kubernetes.Interface, jobLife time.Duration) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *meta.ListOptions) {
		options.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	all := informers.NewSharedInformerFactory(client, 0)
	nodes := all.Core().V1().Nodes()
	nodesAreKnown := nodes.Informer().HasSynced
	played := &kubelets{client: client, nodes: nodes.Lister(), pods: informer.GetIndexer(), queue: queue, jobLife: jobLife}
	add := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, now any) { add(now) },
	})
	if err != nil {
		return err
	}
	_, err = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, now any) { offerCapacity(until, client, now.(*core.Node)) },
	})
	if err != nil {
		return err
	}
	all.Start(until.Done())
	cache.WaitForCacheSync(until.Done(), nodesAreKnown)
	factory.Start(until.Done())
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() { played.work(until) })
	}
	<-until.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

func (played *kubelets) work(until context.Context) {
	for {
		key, ended := played.queue.Get()
		if ended {
			return
		}
		err := played.visit(until, key)
		if err == nil || errors.IsNotFound(err) {
			played.queue.Forget(key)
		} else if until.Err() == nil {
			if !errors.IsConflict(err) {
				fmt.Fprintf(os.Stderr, "pod %s: %v\n", key, err)
			}
			played.queue.AddRateLimited(key)
		}
		played.queue.Done(key)
	}
}

// visit does for a pod what is due.
func (played *kubelets) visit(until context.Context, key string) error {
	held, found, err := played.pods.GetByKey(key)
	if err != nil || !found {
		return err
	}
	pod := held.(*core.Pod).DeepCopy()
	node, err := played.nodes.Get(pod.Spec.NodeName)
	if err != nil || !isPlayed(node) {
		return err
	}
	isOver := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
	switch {
	case pod.DeletionTimestamp != nil:
		return played.end(until, pod, node, isOver)
	case isOver:
		return nil
	case pod.Status.Phase == core.PodRunning && finishes(pod):
		if left := played.jobLife - time.Since(pod.Status.StartTime.Time); left > 0 {
			played.queue.AddAfter(key, left)
			return nil
		}
		return played.report(until, pod, node, core.PodSucceeded)
	case pod.Status.Phase != core.PodRunning || pod.Status.ObservedGeneration != pod.Generation || !isReady(pod):
		return played.report(until, pod, node, core.PodRunning)
	}
	return nil
}

// end reports that the containers of a pod have ended, and deletes it for good.
func (played *kubelets) end(until context.Context, pod *core.Pod, node *core.Node, isOver bool) error {
	if pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return nil // only its finalizers are waited for
	}
	if left := stopTime(pod) - time.Since(deletedAt(pod)); left > 0 && !isOver {
		key, err := cache.MetaNamespaceKeyFunc(pod)
		played.queue.AddAfter(key, left)
		return err
	}
	if !isOver {
		if err := played.report(until, pod, node, core.PodSucceeded); err != nil {
			return err
		}
	}
	now := int64(0)
	return played.client.CoreV1().Pods(pod.Namespace).Delete(until, pod.Name, meta.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &meta.Preconditions{UID: &pod.UID},
	})
}

// stopTime returns how long containers take to stop: a second, so that clients can see a pod that is ending, after what their
// preStop hooks sleep, but no longer than the pod is given.
func stopTime(pod *core.Pod) time.Duration {
	var seconds int64
	for _, one := range pod.Spec.Containers {
		if hooks := one.Lifecycle; hooks != nil && hooks.PreStop != nil && hooks.PreStop.Sleep != nil {
			seconds = max(seconds, hooks.PreStop.Sleep.Seconds)
		}
	}
	if given := pod.DeletionGracePeriodSeconds; given != nil {
		seconds = min(seconds+1, *given)
	}
	return time.Duration(seconds) * time.Second
}

// deletedAt returns when a pod was asked to end; its deletion timestamp is when the time that it is given is over.
func deletedAt(pod *core.Pod) time.Time {
	given := time.Duration(0)
	if pod.DeletionGracePeriodSeconds != nil {
		given = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	return pod.DeletionTimestamp.Add(-given)
}

// finishes says whether the containers of a pod end by themselves: those of a Job do.
func finishes(pod *core.Pod) bool {
	owner := meta.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job"
}

func isReady(pod *core.Pod) bool {
	return gatesAreOpen(pod) == slices.ContainsFunc(pod.Status.Conditions, func(one core.PodCondition) bool {
		return one.Type == core.PodReady && one.Status == core.ConditionTrue
	})
}

func gatesAreOpen(pod *core.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		if !slices.ContainsFunc(pod.Status.Conditions, func(one core.PodCondition) bool {
			return one.Type == gate.ConditionType && one.Status == core.ConditionTrue
		}) {
			return false
		}
	}
	return true
}

// report writes the status of a pod whose containers all run, or have all succeeded.
func (played *kubelets) report(until context.Context, pod *core.Pod, node *core.Node, phase core.PodPhase) error {
	status, now := &pod.Status, meta.Now()
	runs := phase == core.PodRunning
	status.Phase, status.ObservedGeneration = phase, pod.Generation
	if status.StartTime == nil {
		status.StartTime = &now
	}
	if status.HostIP == "" {
		for _, one := range node.Status.Addresses {
			if one.Type == core.NodeInternalIP {
				status.HostIP, status.HostIPs = one.Address, []core.HostIP{{IP: one.Address}}
			}
		}
	}
	if status.PodIP == "" {
		number := int(played.given.Add(1))
		status.PodIP = address(16+number>>16, number)
		if pod.Spec.HostNetwork && status.HostIP != "" {
			status.PodIP = status.HostIP
		}
		status.PodIPs = []core.PodIP{{IP: status.PodIP}}
	}
	status.InitContainerStatuses = played.containers(pod, pod.Spec.InitContainers, runs, true)
	status.ContainerStatuses = played.containers(pod, pod.Spec.Containers, runs, false)
	setConditions(pod, runs, now)
	_, err := played.client.CoreV1().Pods(pod.Namespace).UpdateStatus(until, pod, meta.UpdateOptions{})
	return err
}

func (played *kubelets) containers(pod *core.Pod, containers []core.Container, runs, begin bool) []core.ContainerStatus {
	listed := make([]core.ContainerStatus, 0, len(containers))
	for _, one := range containers {
		stays := runs && (!begin || one.RestartPolicy != nil && *one.RestartPolicy == core.ContainerRestartPolicyAlways)
		id := "none://" + string(pod.UID) + "/" + one.Name
		state := core.ContainerState{Terminated: &core.ContainerStateTerminated{
			Reason: "Completed", StartedAt: *pod.Status.StartTime, FinishedAt: meta.Now(), ContainerID: id,
		}}
		if stays {
			state = core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: *pod.Status.StartTime}}
		}
		listed = append(listed, core.ContainerStatus{
			Name: one.Name, Image: one.Image, ImageID: one.Image, ContainerID: id, State: state, Ready: stays || begin, Started: &stays,
			Resources: one.Resources.DeepCopy(), AllocatedResources: one.Resources.Requests.DeepCopy(),
		})
	}
	return listed
}

func setConditions(pod *core.Pod, runs bool, now meta.Time) {
	is := func(holds bool) core.ConditionStatus {
		if holds {
			return core.ConditionTrue
		}
		return core.ConditionFalse
	}
	for kind, status := range map[core.PodConditionType]core.ConditionStatus{
		core.PodReadyToStartContainers: is(runs), core.PodInitialized: core.ConditionTrue, core.ContainersReady: is(runs),
		core.PodReady: is(runs && gatesAreOpen(pod)), core.PodScheduled: core.ConditionTrue,
	} {
		set := core.PodCondition{Type: kind, Status: status, LastTransitionTime: now, ObservedGeneration: pod.Generation}
		if status == core.ConditionFalse {
			set.Reason = "PodCompleted"
			if runs {
				set.Reason = "ReadinessGatesNotReady"
			}
		}
		place := slices.IndexFunc(pod.Status.Conditions, func(one core.PodCondition) bool { return one.Type == kind })
		switch {
		case place < 0:
			pod.Status.Conditions = append(pod.Status.Conditions, set)
		case pod.Status.Conditions[place].Status != status:
			pod.Status.Conditions[place] = set
		default:
			pod.Status.Conditions[place].ObservedGeneration = pod.Generation
		}
	}
}
