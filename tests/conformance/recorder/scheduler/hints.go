// This file joins kube-scheduler's own package, so that it can ask the scheduler's queue which pods an event wakes.
package scheduler

import (
	"context"
	"reflect"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// Park makes pods unschedulable, each rejected by the given plugins, and returns their names. Pods that PreEnqueue gates are
// left out, as are those without plugins.
func (sched *Scheduler) Park(ctx context.Context, pods []*v1.Pod, rejectedBy map[string][]string) []string {
	for _, pod := range pods {
		sched.ask(ctx, "Delete", pod)
		if len(rejectedBy[nameOf(pod)]) > 0 {
			sched.ask(ctx, "Add", pod)
		}
	}
	parked := []string{}
	for len(sched.SchedulingQueue.PodsInActiveQ()) > 0 {
		popped := reflect.ValueOf(sched.ask(ctx, "Pop")[0].Interface())
		pod := popped.Elem().FieldByName("Pod").Interface().(*v1.Pod)
		popped.Elem().FieldByName("UnschedulablePlugins").Set(reflect.ValueOf(sets.New(rejectedBy[nameOf(pod)]...)))
		back := "AddUnschedulableIfNotPresent"
		if !reflect.ValueOf(sched.SchedulingQueue).MethodByName(back).IsValid() {
			back = "AddUnschedulablePodIfNotPresent"
		}
		sched.ask(ctx, back, popped.Interface(), sched.SchedulingQueue.SchedulingCycle())
		parked = append(parked, nameOf(pod))
	}
	sort.Strings(parked)
	return parked
}

// Woken returns the pods that are no longer unschedulable.
func (sched *Scheduler) Woken(ctx context.Context) []string {
	woken := []string{}
	for _, place := range []string{"PodsInActiveQ", "PodsInBackoffQ"} {
		if !reflect.ValueOf(sched.SchedulingQueue).MethodByName(place).IsValid() {
			continue
		}
		for _, pod := range sched.ask(ctx, place)[0].Interface().([]*v1.Pod) {
			woken = append(woken, nameOf(pod))
		}
	}
	sort.Strings(woken)
	return woken
}

// ask calls a method of the queue. Whether it takes a context or a logger differs between releases.
func (sched *Scheduler) ask(ctx context.Context, name string, given ...any) []reflect.Value {
	method := reflect.ValueOf(sched.SchedulingQueue).MethodByName(name)
	arguments := []reflect.Value{}
	for at := range method.Type().NumIn() {
		switch wanted := method.Type().In(at); wanted {
		case reflect.TypeOf((*context.Context)(nil)).Elem():
			arguments = append(arguments, reflect.ValueOf(ctx))
		case reflect.TypeOf(klog.Logger{}):
			arguments = append(arguments, reflect.ValueOf(klog.Background()))
		default:
			arguments = append(arguments, reflect.ValueOf(given[0]))
			given = given[1:]
		}
	}
	return method.Call(arguments)
}

func nameOf(pod *v1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}
