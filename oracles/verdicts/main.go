// Verdicts asks one release of kube-scheduler for every part of its decisions.
//
// It reads scenarios (one JSON document per line) from standard input and writes them with the field `expected.results`, in the
// form of tests/data/conformance. A scenario whose configuration kube-scheduler refuses gets `expected.refused`. One with
// `changes` gets, for each change in turn, the pods that were unschedulable and those that the change wakes. In the mode
// `groups` the whole scheduler makes attempts, and the answer is what it writes.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

type scenario struct {
	Name         string            `json:"name"`
	Config       json.RawMessage   `json:"config"`
	Mode         string            `json:"mode"`
	Objects      []json.RawMessage `json:"objects"`
	FeatureGates map[string]bool   `json:"featureGates"`
	Changes      []change          `json:"changes"`
}

// change is an object that is created or updated, or that is deleted, while pods wait that the given plugins rejected, and while
// attempts are made that end with a rejection by the given plugins, or with an error if there are none.
type change struct {
	RejectedBy map[string][]string `json:"rejectedBy"`
	InFlight   map[string][]string `json:"inFlight"`
	Set        json.RawMessage     `json:"set"`
	Delete     json.RawMessage     `json:"delete"`
}

type evictions struct {
	lock sync.Mutex
	pods []string
}

func (e *evictions) Take() []string {
	e.lock.Lock()
	defer e.lock.Unlock()
	pods := e.pods
	e.pods = nil
	sort.Strings(pods)
	return pods
}

var gates = flag.Bool("gates", false, "print the feature gates of the release instead: name, default, stage, whether it is locked")

var settle = flag.Duration("settle", 30*time.Millisecond, "time that caches of volumes and claims have to fill")

func main() {
	flag.Parse()
	if *gates {
		table := map[string]any{}
		for gate, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
			table[string(gate)] = map[string]any{"default": spec.Default, "stage": string(spec.PreRelease), "locked": spec.LockToDefault}
		}
		must(json.NewEncoder(os.Stdout).Encode(table))
		return
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	defaults := map[string]bool{}
	for gate, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if !spec.LockToDefault {
			defaults[string(gate)] = utilfeature.DefaultFeatureGate.Enabled(gate)
		}
	}
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 1 {
			var whole map[string]any
			var asked scenario
			must(json.Unmarshal(line, &whole))
			must(json.Unmarshal(line, &asked))
			if text, is := whole["text"].(string); is {
				whole["expected"] = configured(text)
			} else {
				whole["expected"] = answer(&asked, defaults)
			}
			written, err := json.Marshal(whole)
			must(err)
			out.Write(append(written, '\n'))
		}
		if err != nil {
			return
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func answer(asked *scenario, defaults map[string]bool) (expected map[string]any) {
	defer func() {
		if fault := recover(); fault != nil {
			expected = map[string]any{"crashed": fmt.Sprint(fault)}
		}
	}()
	gates := map[string]bool{}
	for _, gate := range []string{"SchedulerAsyncPreemption", "SchedulerAsyncAPICalls"} {
		if _, known := defaults[gate]; known {
			gates[gate] = false
		}
	}
	for gate, open := range asked.FeatureGates {
		// Once it has refused a gate, the process refuses all others.
		if _, settable := defaults[gate]; !settable {
			return map[string]any{"refused": "gate " + gate + " cannot be set"}
		}
		gates[gate] = open
	}
	defer func() {
		restored := map[string]bool{}
		for gate := range gates {
			if value, settable := defaults[gate]; settable {
				restored[gate] = value
			}
		}
		must(utilfeature.DefaultMutableFeatureGate.SetFromMap(restored))
	}()
	asynchronous = gates["SchedulerAsyncPreemption"]
	if asked.Mode == "groups" && gates["SchedulerAsyncAPICalls"] {
		return map[string]any{"refused": "groups are not played with SchedulerAsyncAPICalls: what dispatches the calls does not run here"}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return map[string]any{"refused": err.Error()}
	}
	hundred := int32(100)
	options := []scheduler.Option{scheduler.WithPercentageOfNodesToScore(&hundred)}
	if len(asked.Config) > 0 && string(asked.Config) != "null" {
		config, err := load(asked.Config)
		if err != nil {
			return map[string]any{"refused": err.Error()}
		}
		for at := range config.Profiles {
			config.Profiles[at].PercentageOfNodesToScore = nil
		}
		options = append(options, scheduler.WithProfiles(config.Profiles...), scheduler.WithComponentConfigVersion(config.TypeMeta.APIVersion))
	}
	if len(asked.Changes) > 0 {
		options = append(options, scheduler.WithPodInitialBackoffSeconds(0), scheduler.WithPodMaxBackoffSeconds(0))
	}
	objects, pending, unknown := decode(asked.Objects)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	held := objects
	if asked.Mode == "groups" {
		held = withoutPending(objects)
	}
	client := fake.NewSimpleClientset(held...)
	evicted := &evictions{}
	client.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		// Up to 1.22 a patch is a DeleteAction, too.
		switch act := action.(type) {
		case clienttesting.PatchAction, clienttesting.UpdateAction:
			return true, &v1.Pod{}, nil
		case clienttesting.DeleteAction:
			evicted.lock.Lock()
			evicted.pods = append(evicted.pods, act.GetNamespace()+"/"+act.GetName())
			evicted.lock.Unlock()
			return true, nil, nil
		}
		return false, nil, nil
	})
	// An API server lists objects by name, and this client in any order, which shows in the score of images.
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		nodes := &v1.NodeList{}
		for _, object := range objects {
			if node, is := object.(*v1.Node); is {
				nodes.Items = append(nodes.Items, *node)
			}
		}
		sort.Slice(nodes.Items, func(i, j int) bool { return nodes.Items[i].Name < nodes.Items[j].Name })
		return true, nodes, nil
	})
	var kept *written
	if asked.Mode == "groups" {
		kept = watch(client)
	}
	factory := informersFor(client)
	sched, err := newScheduler(ctx, client, factory, options)
	if err != nil {
		return map[string]any{"refused": err.Error()}
	}
	start(ctx, factory)
	for deadline := time.Now().Add(10 * time.Second); !taken(sched, held) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	// 1.30 and later can wait for their event handlers.
	if handlers, can := any(sched).(interface{ WaitForHandlersSync(context.Context) error }); can {
		must(handlers.WaitForHandlersSync(ctx))
	}
	if slow(objects) {
		wait(*settle)
	}
	if len(asked.Changes) > 0 {
		return map[string]any{"changes": follow(ctx, sched, client.Tracker(), pending, asked.Changes)}
	}
	if kept != nil {
		add(client.Tracker(), pending)
		for deadline := time.Now().Add(10 * time.Second); !taken(sched, objects) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		return sched.play(ctx, kept, evicted)
	}
	results := []any{}
	for _, pod := range pending {
		result, err := sched.record(ctx, pod, asked.Mode == "sequence", evicted)
		must(err)
		if result != nil {
			results = append(results, result)
		}
	}
	expected = map[string]any{"results": results}
	if len(unknown) > 0 {
		expected["unknown"] = unknown
	}
	return expected
}

// follow applies changes one after the other, and says which pods each of them wakes.
func follow(ctx context.Context, sched bench, tracker clienttesting.ObjectTracker, pending []*v1.Pod, changes []change) []any {
	found := []any{}
	for at, one := range changes {
		parked, flying := sched.park(ctx, pending, one.RejectedBy, one.InFlight)
		changed := apply(tracker, one, fmt.Sprint(at+2))
		// The handlers run in goroutines of their own, and say nothing when they are done.
		wait(*settle)
		sched.land(ctx, flying)
		for each := range pending {
			if pod, is := changed.(*v1.Pod); is && pod.UID == pending[each].UID && pod.Spec.NodeName == "" {
				pending[each] = pod
			}
		}
		found = append(found, map[string]any{"parked": parked, "woken": sched.woken(ctx)})
	}
	return found
}

// wait sleeps in small steps, so that goroutines run even if the process was stopped meanwhile.
func wait(long time.Duration) {
	for step := 0; step < 10; step++ {
		time.Sleep(long / 10)
	}
}

// apply returns the object that it creates, updates or deletes.
func apply(tracker clienttesting.ObjectTracker, one change, version string) runtime.Object {
	text := one.Set
	if text == nil {
		text = one.Delete
	}
	objects, _, unknown := decode([]json.RawMessage{text})
	if len(unknown) > 0 {
		return nil
	}
	object := objects[0]
	kinds, _, err := clientscheme.Scheme.ObjectKinds(object)
	must(err)
	accessor, err := meta.Accessor(object)
	must(err)
	accessor.SetResourceVersion(version)
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	namespace := accessor.GetNamespace()
	_, missing := tracker.Get(resource, namespace, accessor.GetName())
	switch {
	case one.Set == nil && missing == nil:
		must(tracker.Delete(resource, namespace, accessor.GetName()))
	case one.Set != nil && missing == nil:
		must(tracker.Update(resource, object, namespace))
	case one.Set != nil:
		must(tracker.Create(resource, object, namespace))
	}
	return object
}

func newScheduler(ctx context.Context, client *fake.Clientset, factory informers.SharedInformerFactory, options []scheduler.Option) (bench, error) {
	recorders := profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}))
	made := Call(scheduler.New, ctx, client, factory, nil, recorders, ctx.Done(), options)
	err, _ := made[1].Interface().(error)
	found, _ := made[0].Interface().(*scheduler.Scheduler)
	return bench{found}, err
}

// informersFor returns the scheduler's informers. Since 1.37 they have a name for metrics.
func informersFor(client *fake.Clientset) informers.SharedInformerFactory {
	return Call(scheduler.NewInformerFactory, client, time.Duration(0), nil)[0].Interface().(informers.SharedInformerFactory)
}

func start(ctx context.Context, factory informers.SharedInformerFactory) {
	factory.Start(ctx.Done())
	closed := make(chan struct{})
	close(closed)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(500 * time.Microsecond) {
		done := true
		for _, synced := range factory.WaitForCacheSync(closed) {
			done = done && synced
		}
		if done {
			break
		}
	}
}

// taken says whether the scheduler holds every node, every placed pod, and every pending pod that is its own.
func taken(sched bench, objects []runtime.Object) bool {
	nodes, pods, pending := 0, 0, 0
	for _, object := range objects {
		switch object := object.(type) {
		case *v1.Node:
			nodes++
		case *v1.Pod:
			_, ours := sched.Profiles[object.Spec.SchedulerName]
			if object.Status.Phase == v1.PodSucceeded || object.Status.Phase == v1.PodFailed {
				continue
			} else if object.Spec.NodeName != "" {
				pods++
			} else if ours {
				pending++
			}
		}
	}
	// It returns a summary too in newer releases.
	queued := reflect.ValueOf(sched.SchedulingQueue.PendingPods).Call(nil)[0].Len()
	held, err := sched.Cache.PodCount()
	return err == nil && held >= pods && queued >= pending && sched.Cache.NodeCount() >= nodes
}

// slow says whether caches beside the scheduler's own must fill.
func slow(objects []runtime.Object) bool {
	for _, object := range objects {
		name := fmt.Sprintf("%T", object)
		if strings.Contains(name, "Persistent") || strings.Contains(name, "Claim") || strings.Contains(name, "Resource") || strings.Contains(name, "CSI") {
			return true
		}
	}
	return false
}

func load(text []byte) (*schedulerapi.KubeSchedulerConfiguration, error) {
	object, kind, err := configscheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	config, is := object.(*schedulerapi.KubeSchedulerConfiguration)
	if !is {
		return nil, fmt.Errorf("%v is no configuration", kind)
	}
	config.TypeMeta.APIVersion = kind.GroupVersion().String()
	if fault := validation.ValidateKubeSchedulerConfiguration(config); fault != nil {
		return nil, fault
	}
	return config, nil
}

// configured loads a configuration, validates it, and builds its profiles.
func configured(text string) (expected map[string]any) {
	defer func() {
		if fault := recover(); fault != nil {
			expected = map[string]any{"crashed": fmt.Sprint(fault)}
		}
	}()
	object, kind, err := configscheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		return map[string]any{"loadError": err.Error()}
	}
	config, is := object.(*schedulerapi.KubeSchedulerConfiguration)
	if !is {
		return map[string]any{"loadError": fmt.Sprintf("%v is no configuration", kind)}
	}
	config.TypeMeta.APIVersion = kind.GroupVersion().String()
	if fault := validation.ValidateKubeSchedulerConfiguration(config); fault != nil {
		faults := []any{}
		for _, one := range flattened(fault) {
			if field, is := one.(*field.Error); is {
				faults = append(faults, map[string]any{"type": string(field.Type), "field": field.Field, "detail": field.Detail, "text": field.Error()})
			} else {
				faults = append(faults, map[string]any{"text": one.Error()})
			}
		}
		return map[string]any{"faults": faults}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := fake.NewSimpleClientset()
	factory := informersFor(client)
	sched, err := newScheduler(ctx, client, factory, []scheduler.Option{
		scheduler.WithProfiles(config.Profiles...), scheduler.WithComponentConfigVersion(config.TypeMeta.APIVersion), scheduler.WithParallelism(1),
	})
	if err != nil {
		return map[string]any{"startError": err.Error()}
	}
	profiles := map[string]any{}
	for name, one := range sched.Profiles {
		points := map[string]any{}
		listed, _ := json.Marshal(one.ListPlugins())
		must(json.Unmarshal(listed, &points))
		profiles[name] = points
	}
	return map[string]any{"profiles": profiles}
}

func flattened(fault error) (found []error) {
	if many, is := fault.(utilerrors.Aggregate); is {
		for _, one := range many.Errors() {
			found = append(found, flattened(one)...)
		}
		return found
	}
	return []error{fault}
}

// stored returns an object as an API server stores it: what may be omitted is so where it is empty.
func stored(object runtime.Object) runtime.Object {
	text, err := json.Marshal(object)
	must(err)
	again, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	must(err)
	return again
}

func decode(given []json.RawMessage) (objects []runtime.Object, pending []*v1.Pod, unknown []string) {
	for _, text := range given {
		object, kind, err := clientscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil && kind != nil && kind.Kind == "CSIStorageCapacity" {
			// Up to 1.23 this kind is in v1beta1.
			text = bytes.Replace(text, []byte(`"storage.k8s.io/v1"`), []byte(`"storage.k8s.io/v1beta1"`), 1)
			object, kind, err = clientscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		}
		if err != nil {
			unknown = append(unknown, fmt.Sprint(kind))
			continue
		}
		object = stored(object)
		switch object := object.(type) {
		case *v1.Pod:
			corev1.SetObjectDefaults_Pod(object)
			if object.Spec.NodeName == "" {
				pending = append(pending, object)
			}
		case *v1.Node:
			corev1.SetObjectDefaults_Node(object)
		case *v1.PersistentVolume:
			corev1.SetObjectDefaults_PersistentVolume(object)
		case *v1.PersistentVolumeClaim:
			corev1.SetObjectDefaults_PersistentVolumeClaim(object)
		}
		// Caches compare versions of objects, so each has one.
		must(meta.NewAccessor().SetResourceVersion(object, "1"))
		objects = append(objects, object)
	}
	return objects, pending, unknown
}
