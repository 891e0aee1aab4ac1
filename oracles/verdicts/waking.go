package main

import (
	"context"
	"reflect"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// park makes pods unschedulable, each rejected by the given plugins, and returns their names. Those in flight are popped and
// stay so: land ends their attempts. Pods that PreEnqueue gates are left out, as are those that neither map has.
func (sched bench) park(ctx context.Context, pods []*v1.Pod, rejectedBy, inFlight map[string][]string) ([]string, []any) {
	for _, pod := range pods {
		sched.ask(ctx, "Delete", pod)
		if _, flies := inFlight[nameOf(pod)]; flies || len(rejectedBy[nameOf(pod)]) > 0 {
			sched.ask(ctx, "Add", pod)
		}
	}
	parked, flying := []string{}, []any{}
	for len(sched.SchedulingQueue.PodsInActiveQ()) > 0 {
		popped := sched.ask(ctx, "Pop")[0].Interface()
		name := nameOf(podOf(popped))
		if plugins, flies := inFlight[name]; flies {
			reject(popped, plugins)
			flying = append(flying, popped)
		} else {
			reject(popped, rejectedBy[name])
			sched.putBack(ctx, popped)
		}
		parked = append(parked, name)
	}
	sort.Strings(parked)
	return parked, flying
}

// land ends the attempts of pods in flight.
func (sched bench) land(ctx context.Context, flying []any) {
	for _, popped := range flying {
		sched.putBack(ctx, popped)
	}
}

func podOf(popped any) *v1.Pod {
	return reflect.ValueOf(popped).Elem().FieldByName("Pod").Interface().(*v1.Pod)
}

func reject(popped any, plugins []string) {
	reflect.ValueOf(popped).Elem().FieldByName("UnschedulablePlugins").Set(reflect.ValueOf(sets.New(plugins...)))
}

func (sched bench) putBack(ctx context.Context, popped any) {
	back := "AddUnschedulableIfNotPresent"
	if !reflect.ValueOf(sched.SchedulingQueue).MethodByName(back).IsValid() {
		back = "AddUnschedulablePodIfNotPresent"
	}
	sched.ask(ctx, back, popped, sched.SchedulingQueue.SchedulingCycle())
}

// woken returns the pods that are no longer unschedulable.
func (sched bench) woken(ctx context.Context) []string {
	woken := []string{}
	for _, pod := range sched.ready(ctx) {
		woken = append(woken, nameOf(pod))
	}
	sort.Strings(woken)
	return woken
}

// ready returns the active pods and those in backoff, of which releases up to 1.32 have no list.
func (sched bench) ready(ctx context.Context) (found []*v1.Pod) {
	queue := reflect.ValueOf(sched.SchedulingQueue)
	if queue.MethodByName("PodsInBackoffQ").IsValid() {
		active := sched.ask(ctx, "PodsInActiveQ")[0].Interface().([]*v1.Pod)
		return append(active, sched.ask(ctx, "PodsInBackoffQ")[0].Interface().([]*v1.Pod)...)
	}
	waiting := map[string]bool{}
	for _, name := range queue.Elem().FieldByName("unschedulablePods").Elem().FieldByName("podInfoMap").MapKeys() {
		waiting[name.String()] = true
	}
	for _, pod := range sched.ask(ctx, "PendingPods")[0].Interface().([]*v1.Pod) {
		if !waiting[pod.Name+"_"+pod.Namespace] {
			found = append(found, pod)
		}
	}
	return found
}

// ask calls a method of the queue. Whether it takes a context or a logger differs between releases.
func (sched bench) ask(ctx context.Context, name string, given ...any) []reflect.Value {
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
