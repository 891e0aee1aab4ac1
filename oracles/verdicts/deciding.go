package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Recording is the evaluation of one pod, in the form of a recorded result.
type Recording map[string]any

// Evictions collects the pods that preemption deletes, and keeps them in the cluster.
type Evictions interface{ Take() []string }

const postFilterRuns = 16

// asynchronous says that pods are evicted in goroutines of their own.
var asynchronous bool

// bench is a scheduler, asked from outside its package: its profiles hand out the snapshot that their plugins read.
type bench struct{ *scheduler.Scheduler }

// record evaluates a pod on every node. In a sequence the pod is then assumed on the first of the best nodes.
func (sched bench) record(ctx context.Context, pod *v1.Pod, inSequence bool, evictions Evictions) (Recording, error) {
	profile, found := sched.Profiles[pod.Spec.SchedulerName]
	if !found {
		return nil, nil
	}
	snapshot := profile.SnapshotSharedLister()
	if err := failureOf(Call(sched.Cache.UpdateSnapshot, klog.Background(), snapshot.(*internalcache.Snapshot))); err != nil {
		return nil, err
	}
	result := Recording{"pod": pod.Namespace + "/" + pod.Name, "feasible": []string{}}
	// A nominated node is tried first and alone: here every node is.
	free := pod.DeepCopy()
	free.Status.NominatedNodeName = ""
	state := framework.NewCycleState()
	returned := Call(profile.RunPreFilterPlugins, ctx, state, free)
	narrowed := namesOf(returned[0])
	status := statusOf(returned[1].Interface())
	if code := status["code"]; code == "Error" {
		result["error"] = fmt.Sprint(returned[1].MethodByName("Message").Call(nil)[0])
		return result, nil
	} else if code != "Success" && code != "Skip" {
		result["preFilter"] = status
		return result, sched.fail(ctx, profile, free, pod, inSequence, evictions, result)
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	for name := range narrowed {
		if _, err := snapshot.NodeInfos().Get(name); err == nil {
			continue
		}
		// In 1.28 a node that does not exist fails the attempt.
		err := sched.attempt(ctx, profile, framework.NewCycleState(), free)
		if _, unfit := err.(*framework.FitError); err != nil && !unfit {
			result["error"] = err.Error()
			return result, nil
		}
	}
	if narrowed != nil {
		result["preFilterNodes"] = sorted(narrowed)
	}
	feasible := nodes[:0:0]
	refused, failed := map[string]any{}, false
	for _, node := range nodes {
		if narrowed != nil && !narrowed[node.Node().Name] {
			continue
		}
		answer := profile.RunFilterPluginsWithNominatedPods(ctx, state, free, node)
		if answer.IsSuccess() {
			feasible = append(feasible, node)
		} else {
			refused[node.Node().Name] = statusOf(answer)
			failed = failed || answer.Code().String() == "Error"
		}
	}
	result["filter"] = refused
	names := []string{}
	for _, node := range feasible {
		names = append(names, node.Node().Name)
	}
	sort.Strings(names)
	result["feasible"] = names
	if failed {
		// kube-scheduler ends the attempt at the first node with an error, whichever that is.
		return result, nil
	}
	if len(feasible) == 0 {
		return result, sched.fail(ctx, profile, free, pod, inSequence, evictions, result)
	}
	objects := []*v1.Node{}
	for _, node := range feasible {
		objects = append(objects, node.Node())
	}
	answer := Call(profile.RunPreScorePlugins, ctx, state, free, feasible, objects)[0].Interface().(outcome)
	if !answer.IsSuccess() {
		result["error"] = answer.AsError().Error()
		return result, nil
	}
	scored := Call(profile.RunScorePlugins, ctx, state, free, feasible, objects)
	if answer = scored[1].Interface().(outcome); !answer.IsSuccess() {
		result["error"] = answer.AsError().Error()
		return result, nil
	}
	scores, total := scoresOf(scored[0])
	best := []string{}
	for _, name := range names {
		if len(best) == 0 || total[name] > total[best[0]] {
			best = []string{name}
		} else if total[name] == total[best[0]] {
			best = append(best, name)
		}
	}
	result["total"], result["best"] = total, best
	if !inSequence {
		result["scores"] = scores
		return result, nil
	}
	result["scores"] = scores
	result["chosen"] = best[0]
	if answer := profile.RunReservePluginsReserve(ctx, state, free, best[0]); !answer.IsSuccess() {
		return nil, errors.New("reserve: " + answer.AsError().Error())
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = best[0]
	sched.SchedulingQueue.DeleteNominatedPodIfExists(pod)
	return result, failureOf(Call(sched.Cache.AssumePod, klog.Background(), assumed))
}

// outcome is a status; its package differs between releases.
type outcome interface {
	IsSuccess() bool
	AsError() error
}

// scoresOf returns the scores of each node by plugin, and their sums. Up to 1.26 they are listed by plugin.
func scoresOf(listed reflect.Value) (map[string]map[string]int64, map[string]int64) {
	scores, total := map[string]map[string]int64{}, map[string]int64{}
	add := func(node, plugin string, score int64) {
		if scores[node] == nil {
			scores[node] = map[string]int64{}
		}
		scores[node][plugin] = score
		total[node] += score
	}
	if listed.Kind() == reflect.Map {
		for _, plugin := range listed.MapKeys() {
			for at, nodes := 0, listed.MapIndex(plugin); at < nodes.Len(); at++ {
				add(nodes.Index(at).FieldByName("Name").String(), plugin.String(), nodes.Index(at).FieldByName("Score").Int())
			}
		}
		return scores, total
	}
	for at := 0; at < listed.Len(); at++ {
		node := listed.Index(at)
		name, plugins := node.FieldByName("Name").String(), node.FieldByName("Scores")
		scores[name], total[name] = map[string]int64{}, 0
		for each := 0; each < plugins.Len(); each++ {
			add(name, plugins.Index(each).FieldByName("Name").String(), plugins.Index(each).FieldByName("Score").Int())
		}
	}
	return scores, total
}

// Call calls a function whose parameters differ between releases: it passes the arguments that the function takes, in order.
func Call(function any, arguments ...any) []reflect.Value {
	of := reflect.ValueOf(function)
	takes, passed := of.Type(), []reflect.Value{}
	for _, argument := range arguments {
		if at := len(passed); at == takes.NumIn() {
			break
		} else if argument == nil {
			passed = append(passed, reflect.Zero(takes.In(at)))
		} else if reflect.TypeOf(argument).AssignableTo(takes.In(at)) {
			passed = append(passed, reflect.ValueOf(argument))
		}
	}
	if takes.IsVariadic() {
		return of.CallSlice(passed)
	}
	return of.Call(passed)
}

// failureOf returns the error among what a function returned.
func failureOf(returned []reflect.Value) error {
	failure, _ := returned[len(returned)-1].Interface().(error)
	return failure
}

// fail records the event's text, and what PostFilter answers.
func (sched bench) fail(ctx context.Context, profile framework.Framework, free, pod *v1.Pod, inSequence bool, evictions Evictions, result Recording) error {
	state := framework.NewCycleState()
	err := sched.attempt(ctx, profile, state, free)
	if errors.Is(err, scheduler.ErrNoNodesAvailable) {
		result["message"] = err.Error()
		return nil
	}
	fault, unfit := err.(*framework.FitError)
	if !unfit {
		if err != nil {
			result["error"] = err.Error()
		}
		return nil
	}
	if !inSequence && profile.HasPostFilterPlugins() {
		outcomes := map[string]Recording{}
		runs := postFilterRuns
		if len(pod.Spec.ResourceClaims) > 0 {
			// Preemption tells DynamicResources which claims are in the way, which its next run would free.
			runs = 1
		}
		for run := 0; run < runs; run++ {
			nominated, answer := profile.RunPostFilterPlugins(ctx, state, pod, fault.Diagnosis.NodeToStatus)
			if asynchronous {
				wait(10 * time.Millisecond)
			}
			outcome := Recording{}
			if nominated != nil && nominated.NominatingInfo != nil && nominated.NominatedNodeName != "" {
				outcome["nominated"] = nominated.NominatedNodeName
			}
			if victims := evictions.Take(); len(victims) > 0 {
				outcome["victims"] = victims
			}
			fault.Diagnosis.PostFilterMsg = answer.Message()
			outcomes[fmt.Sprint(outcome)] = Recording{"outcome": outcome, "message": answer.Message(), "event": fault.Error()}
			result["postFilter"] = Recording{"code": answer.Code().String(), "message": answer.Message(), "anyOf": []Recording{}}
		}
		each := []string{}
		for name := range outcomes {
			each = append(each, name)
		}
		sort.Strings(each)
		anyOf := []Recording{}
		for _, name := range each {
			outcome := outcomes[name]["outcome"].(Recording)
			if len(outcomes) > 1 {
				// The texts may name the node.
				outcome["message"], outcome["event"] = outcomes[name]["message"], outcomes[name]["event"]
			}
			anyOf = append(anyOf, outcome)
		}
		result["postFilter"].(Recording)["anyOf"] = anyOf
	}
	result["message"] = fault.Error()
	return nil
}

// attempt schedules a pod as kube-scheduler does, and returns why it cannot.
func (sched bench) attempt(ctx context.Context, profile framework.Framework, state any, free *v1.Pod) error {
	// The type of the pod differs between releases.
	schedule, info := reflect.ValueOf(sched.SchedulePod), reflect.ValueOf(free)
	if queued := (&framework.QueuedPodInfo{}); schedule.Type().In(3) == reflect.TypeOf(queued) {
		queued.PodInfo = Call(framework.NewPodInfo, free)[0].Interface().(*framework.PodInfo)
		info = reflect.ValueOf(queued)
	}
	failure := schedule.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(profile), reflect.ValueOf(state), info})[1].Interface()
	err, _ := failure.(error)
	return err
}

// namesOf returns the nodes that PreFilter narrows the search to, or nil for all.
func namesOf(narrowed reflect.Value) map[string]bool {
	if narrowed.IsNil() || narrowed.Elem().FieldByName("NodeNames").IsNil() {
		return nil
	}
	names := map[string]bool{}
	for _, name := range narrowed.Elem().FieldByName("NodeNames").MapKeys() {
		names[name.String()] = true
	}
	return names
}

func statusOf(status any) Recording {
	of := reflect.ValueOf(status)
	if of.IsNil() {
		return Recording{"code": "Success"}
	}
	reasons := append([]string{}, of.MethodByName("Reasons").Call(nil)[0].Interface().([]string)...)
	sort.Strings(reasons)
	plugin := of.MethodByName("Plugin")
	if !plugin.IsValid() {
		// Its name up to 1.28.
		plugin = of.MethodByName("FailedPlugin")
	}
	return Recording{
		"code":    fmt.Sprint(of.MethodByName("Code").Call(nil)[0].Interface()),
		"plugin":  plugin.Call(nil)[0].String(),
		"reasons": reasons,
	}
}

func sorted(names map[string]bool) []string {
	list := []string{}
	for name := range names {
		list = append(list, name)
	}
	sort.Strings(list)
	return list
}
