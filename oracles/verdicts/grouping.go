package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// written collects what a scheduler writes while it makes attempts: of it only conditions of groups come back to it.
type written struct {
	lock      sync.Mutex
	count     int
	told      int
	bound     map[string]string
	failed    map[string]string
	nominated map[string]string
	groups    map[string]any
}

// attempter makes one attempt with a pod or a group of pods. Releases before 1.36 keep it to themselves.
type attempter interface{ ScheduleOne(context.Context) }

// watch takes the writes of a client.
func watch(client *fake.Clientset) *written {
	kept := &written{bound: map[string]string{}, failed: map[string]string{}, nominated: map[string]string{}, groups: map[string]any{}}
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		binding, is := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		if !is {
			return false, nil, nil
		}
		kept.lock.Lock()
		defer kept.lock.Unlock()
		kept.count++
		kept.bound[binding.Namespace+"/"+binding.Name] = binding.Target.Name
		return true, binding, nil
	})
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		name := patch.GetNamespace() + "/" + patch.GetName()
		given := statusIn(patch.GetPatch())
		kept.lock.Lock()
		defer kept.lock.Unlock()
		kept.count++
		switch resource := patch.GetResource().Resource; resource {
		case "pods":
			for _, condition := range given.Conditions {
				if condition["type"] == "PodScheduled" {
					kept.failed[name] = textOf(condition, "message")
				}
			}
			if given.NominatedNodeName != "" {
				kept.nominated[name] = given.NominatedNodeName
			}
		case "podgroups", "compositepodgroups":
			kept.told++
			group, err := comeBack(client.Tracker(), patch, fmt.Sprint(kept.told+1))
			if err != nil {
				return true, nil, err
			}
			// The patch has only what changes of a condition.
			text, err := json.Marshal(group)
			must(err)
			for _, condition := range statusIn(text).Conditions {
				kept.groups[resource+" "+name+" "+textOf(condition, "type")] = map[string]any{
					"status": textOf(condition, "status"), "reason": textOf(condition, "reason"), "message": textOf(condition, "message"),
				}
			}
			return true, group, nil
		}
		return false, nil, nil
	})
	return kept
}

// status is what a pod or a group says of itself.
type status struct {
	NominatedNodeName string           `json:"nominatedNodeName"`
	Conditions        []map[string]any `json:"conditions"`
}

func statusIn(text []byte) status {
	var given struct {
		Status status `json:"status"`
	}
	must(json.Unmarshal(text, &given))
	return given.Status
}

// comeBack patches a group as an API server does, which gives it another version: only then the scheduler takes notice.
func comeBack(tracker clienttesting.ObjectTracker, patch clienttesting.PatchAction, version string) (runtime.Object, error) {
	_, object, err := clienttesting.ObjectReaction(tracker)(patch)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(version)
	return object, tracker.Update(patch.GetResource(), object, patch.GetNamespace())
}

func textOf(condition map[string]any, field string) string {
	text, _ := condition[field].(string)
	return text
}

func (kept *written) writes() int {
	kept.lock.Lock()
	defer kept.lock.Unlock()
	return kept.count
}

func (kept *written) conditions() int {
	kept.lock.Lock()
	defer kept.lock.Unlock()
	return kept.told
}

// play makes attempts until no pod is active, and says what was written.
func (sched bench) play(ctx context.Context, kept *written, evictions *evictions) map[string]any {
	one, can := any(sched.Scheduler).(attempter)
	if !can {
		return map[string]any{"refused": "this release has no attempts that can be made one by one"}
	}
	for attempts := 0; attempts < 200; attempts++ {
		if len(sched.SchedulingQueue.PodsInActiveQ()) == 0 {
			// Pods are bound in goroutines of their own.
			for before := -1; before != kept.writes(); {
				before = kept.writes()
				wait(15 * time.Millisecond)
			}
			if len(sched.SchedulingQueue.PodsInActiveQ()) == 0 {
				break
			}
		}
		before := kept.conditions()
		one.ScheduleOne(ctx)
		if kept.conditions() != before {
			// The next attempt knows the condition, and does not take back that a group was scheduled.
			wait(15 * time.Millisecond)
		}
	}
	victims := evictions.Take()
	kept.lock.Lock()
	defer kept.lock.Unlock()
	return map[string]any{"played": map[string]any{
		"bound": kept.bound, "failed": kept.failed, "nominated": kept.nominated, "groups": kept.groups, "victims": distinct(victims),
	}}
}

func distinct(names []string) []string {
	found := []string{}
	for at, name := range names {
		if at == 0 || name != names[at-1] {
			found = append(found, name)
		}
	}
	sort.Strings(found)
	return found
}

func withoutPending(objects []runtime.Object) (held []runtime.Object) {
	for _, object := range objects {
		if pod, is := object.(*v1.Pod); !is || pod.Spec.NodeName != "" {
			held = append(held, object)
		}
	}
	return held
}

// add creates pods by name. Their groups are there: pods that wait for a group leave the queue in a random order.
func add(tracker clienttesting.ObjectTracker, pods []*v1.Pod) {
	sort.Slice(pods, func(i, j int) bool { return nameOf(pods[i]) < nameOf(pods[j]) })
	for _, pod := range pods {
		must(tracker.Create(v1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace))
	}
}
