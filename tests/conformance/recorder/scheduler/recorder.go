// This file joins kube-scheduler's own package, so that it can evaluate single pods with the scheduler's snapshot and plugins.
// STATUSES stands for the field of the diagnosis with the status of each node; its name differs between releases.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Recording is the evaluation of one pod, in the form of a recorded result.
type Recording map[string]any

// Evictions collects the pods that preemption deletes, and keeps them in the cluster.
type Evictions interface{ Take() []string }

const postFilterRuns = 16

// TakeSnapshot brings the scheduler's snapshot up to date.
func (sched *Scheduler) TakeSnapshot() error {
	return sched.Cache.UpdateSnapshot(klog.Background(), sched.nodeInfoSnapshot)
}

// Record evaluates a pod on every node. In a sequence the pod is then assumed on the first of the best nodes.
func (sched *Scheduler) Record(ctx context.Context, pod *v1.Pod, inSequence bool, evictions Evictions) (Recording, error) {
	profile, found := sched.Profiles[pod.Spec.SchedulerName]
	if !found {
		return nil, nil
	}
	if err := sched.TakeSnapshot(); err != nil {
		return nil, err
	}
	result := Recording{"pod": pod.Namespace + "/" + pod.Name, "feasible": []string{}}
	// A nominated node is tried first and alone: here every node is.
	free := pod.DeepCopy()
	free.Status.NominatedNodeName = ""
	state := framework.NewCycleState()
	// The number of returned values differs between releases.
	returned := reflect.ValueOf(profile).MethodByName("RunPreFilterPlugins").Call(
		[]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(state), reflect.ValueOf(free)})
	narrowed := namesOf(returned[0])
	status := statusOf(returned[1].Interface())
	if code := status["code"]; code == "Error" {
		result["error"] = fmt.Sprint(returned[1].MethodByName("Message").Call(nil)[0])
		return result, nil
	} else if code != "Success" && code != "Skip" {
		result["preFilter"] = status
		return result, sched.fail(ctx, profile, free, pod, inSequence, evictions, result)
	}
	nodes, err := sched.nodeInfoSnapshot.NodeInfos().List()
	if err != nil {
		return nil, err
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
	if len(refused) > 0 {
		result["filter"] = refused
	}
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
	if answer := profile.RunPreScorePlugins(ctx, state, free, feasible); !answer.IsSuccess() {
		result["error"] = answer.AsError().Error()
		return result, nil
	}
	perNode, answer := profile.RunScorePlugins(ctx, state, free, feasible)
	if !answer.IsSuccess() {
		result["error"] = answer.AsError().Error()
		return result, nil
	}
	scores, total := map[string]map[string]int64{}, map[string]int64{}
	best := []string{}
	for _, node := range perNode {
		scores[node.Name] = map[string]int64{}
		for _, plugin := range node.Scores {
			scores[node.Name][plugin.Name] = plugin.Score
		}
		total[node.Name] = node.TotalScore
	}
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
	return result, sched.Cache.AssumePod(klog.Background(), assumed)
}

// fail records the event's text, and what PostFilter answers.
func (sched *Scheduler) fail(ctx context.Context, profile framework.Framework, free, pod *v1.Pod, inSequence bool, evictions Evictions, result Recording) error {
	state := framework.NewCycleState()
	// The type of the pod differs between releases.
	schedule, info := reflect.ValueOf(sched.SchedulePod), reflect.ValueOf(free)
	if queued := (&framework.QueuedPodInfo{}); schedule.Type().In(3) == reflect.TypeOf(queued) {
		made, err := framework.NewPodInfo(free)
		if err != nil {
			return err
		}
		queued.PodInfo = made
		info = reflect.ValueOf(queued)
	}
	failure := schedule.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(profile), reflect.ValueOf(state), info})[1].Interface()
	err, _ := failure.(error)
	if errors.Is(err, ErrNoNodesAvailable) {
		result["message"] = err.Error()
		return nil
	}
	fault, unfit := err.(*framework.FitError)
	if !unfit {
		if err != nil {
			result["error"] = err.Error()
		}
		return err
	}
	if !inSequence && profile.HasPostFilterPlugins() {
		outcomes := map[string]Recording{}
		for range postFilterRuns {
			nominated, answer := profile.RunPostFilterPlugins(ctx, state, pod, STATUSES)
			outcome := Recording{}
			if nominated != nil && nominated.NominatingInfo != nil && nominated.NominatedNodeName != "" {
				outcome["nominated"] = nominated.NominatedNodeName
			}
			if victims := evictions.Take(); len(victims) > 0 {
				outcome["victims"] = victims
			}
			outcomes[fmt.Sprint(outcome)] = outcome
			fault.Diagnosis.PostFilterMsg = answer.Message()
			result["postFilter"] = Recording{"code": answer.Code().String(), "message": answer.Message(), "anyOf": []Recording{}}
		}
		each := []string{}
		for name := range outcomes {
			each = append(each, name)
		}
		sort.Strings(each)
		anyOf := []Recording{}
		for _, name := range each {
			anyOf = append(anyOf, outcomes[name])
		}
		result["postFilter"].(Recording)["anyOf"] = anyOf
	}
	result["message"] = fault.Error()
	return nil
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
	return Recording{
		"code":    fmt.Sprint(of.MethodByName("Code").Call(nil)[0].Interface()),
		"plugin":  of.MethodByName("Plugin").Call(nil)[0].String(),
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
