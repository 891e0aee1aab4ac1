// Kueue runs the scheduler, the cache and the queues of Kueue on worlds of queues and workloads.
//
// It reads worlds (one JSON document per line) from standard input and writes each again with `answers`: after each event, what
// became of every workload. Objects live in a client in memory, and time is a clock that each event moves on by a second. What
// Kueue's controllers do with a workload that is created, finishes or is evicted is done here: it enters the queues, leaves the
// cache, or gives its quota back and waits again.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/scheduler"
	preemptexpectations "sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/routine"
	utiltesting "sigs.k8s.io/kueue/pkg/util/testing"
	kueuewait "sigs.k8s.io/kueue/pkg/util/wait"
	"sigs.k8s.io/kueue/pkg/workload"
)

//go:linkname schedule sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func schedule(*scheduler.Scheduler, context.Context) kueuewait.SpeedSignal

//go:linkname setAdmissionRoutineWrapper sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).setAdmissionRoutineWrapper
func setAdmissionRoutineWrapper(*scheduler.Scheduler, routine.Wrapper)

// mostCycles bounds the cycles after one event: heads of StrictFIFO queues are tried again without end.
const (
	mostCycles = 20
	mostRounds = 4
)

type world struct {
	Name        string            `json:"name"`
	Objects     []json.RawMessage `json:"objects"`
	FairSharing bool              `json:"fairSharing"`
	Events      []event           `json:"events"`
	Answers     [][]answer        `json:"answers"`
}

type event struct {
	Create json.RawMessage `json:"create,omitempty"`
	Finish string          `json:"finish,omitempty"`
}

// answer is what became of a workload. Evictions are the reasons of all that it suffered, in turn.
type answer struct {
	Name      string   `json:"name"`
	Admitted  []string `json:"admitted,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Message   string   `json:"message,omitempty"`
	Evictions []string `json:"evictions,omitempty"`
}

type run struct {
	ctx       context.Context
	log       logr.Logger
	client    client.Client
	clock     *testingclock.FakeClock
	cache     *schdcache.Cache
	queues    *qcache.Manager
	wake      func(context.Context) int
	scheduler *scheduler.Scheduler
	admitting sync.WaitGroup
	known     map[string]*kueue.Workload
	evictions map[string][]string
}

func main() {
	ctrl.SetLogger(logr.Discard())
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(strings.TrimSpace(string(line))) > 0 {
			var given world
			if failed := json.Unmarshal(line, &given); failed != nil {
				fail(failed)
			}
			if failed := play(&given); failed != nil {
				fail(fmt.Errorf("%s: %w", given.Name, failed))
			}
			told, failed := json.Marshal(given)
			if failed != nil {
				fail(failed)
			}
			out.Write(append(told, '\n'))
			out.Flush()
		}
		if err != nil {
			return
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func play(given *world) error {
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(context.Background(), logr.Discard()))
	defer cancel()
	one := &run{
		ctx: ctx, log: logr.Discard(), clock: testingclock.NewFakeClock(time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)),
		known: map[string]*kueue.Workload{}, evictions: map[string][]string{},
	}
	if err := one.begin(given); err != nil {
		return err
	}
	for _, happened := range given.Events {
		one.clock.Step(time.Second)
		if err := one.apply(happened); err != nil {
			return err
		}
		if err := one.settle(); err != nil {
			return err
		}
		found, err := one.answers()
		if err != nil {
			return err
		}
		given.Answers = append(given.Answers, found)
	}
	return nil
}

// begin builds the client, the cache and the queues with the objects of administrators.
func (r *run) begin(given *world) error {
	builder := utiltesting.NewClientBuilder(nodev1.AddToScheme).
		WithIndex(&corev1.LimitRange{}, indexer.LimitRangeHasContainerType, indexer.IndexLimitRangeHasContainerType).
		WithStatusSubresource(&kueue.Workload{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: utiltesting.TreatSSAAsStrategicMerge})
	var queues []*kueue.LocalQueue
	var clusterQueues []*kueue.ClusterQueue
	var flavors []*kueue.ResourceFlavor
	var cohorts []*kueue.Cohort
	var held []client.Object
	for _, raw := range given.Objects {
		var head metav1.TypeMeta
		if err := json.Unmarshal(raw, &head); err != nil {
			return err
		}
		var object client.Object
		switch head.Kind {
		case "ClusterQueue":
			one := &kueue.ClusterQueue{}
			clusterQueues, object = append(clusterQueues, one), one
		case "LocalQueue":
			one := &kueue.LocalQueue{}
			queues, object = append(queues, one), one
		case "ResourceFlavor":
			one := &kueue.ResourceFlavor{}
			flavors, object = append(flavors, one), one
		case "Cohort":
			one := &kueue.Cohort{}
			cohorts, object = append(cohorts, one), one
		case "Namespace":
			object = &corev1.Namespace{}
		case "LimitRange":
			object = &corev1.LimitRange{}
		case "RuntimeClass":
			object = &nodev1.RuntimeClass{}
		default:
			return fmt.Errorf("kind %s is not played", head.Kind)
		}
		if err := json.Unmarshal(raw, object); err != nil {
			return err
		}
		held = append(held, object)
	}
	r.client = builder.WithObjects(held...).Build()
	var sharing *config.FairSharing
	if given.FairSharing {
		sharing = &config.FairSharing{}
	}
	expected := preemptexpectations.New()
	r.cache = schdcache.New(r.client, schdcache.WithFairSharing(given.FairSharing))
	manager, requeuer := qcache.NewManagerForUnitTestsWithRequeuer(
		r.client, r.cache, qcache.WithClock(r.clock), qcache.WithPreemptionExpectations(expected))
	r.queues, r.wake = manager, requeuer.ProcessRequeues
	for _, one := range flavors {
		r.cache.AddOrUpdateResourceFlavor(r.log, one)
	}
	for _, one := range cohorts {
		if err := r.cache.AddOrUpdateCohort(one); err != nil {
			return err
		}
		r.queues.AddOrUpdateCohort(r.ctx, one)
	}
	for _, one := range clusterQueues {
		if err := r.cache.AddClusterQueue(r.ctx, one); err != nil {
			return err
		}
		if err := r.queues.AddClusterQueue(r.ctx, one); err != nil {
			return err
		}
	}
	for _, one := range queues {
		if err := r.queues.AddLocalQueue(r.ctx, one); err != nil {
			return err
		}
	}
	r.scheduler = scheduler.New(
		r.queues, r.cache, r.client, record.NewFakeRecorder(100000), scheduler.WithFairSharing(sharing),
		scheduler.WithClock(nil, r.clock), scheduler.WithPreemptionExpectations(expected))
	setAdmissionRoutineWrapper(r.scheduler, routine.NewWrapper(func() { r.admitting.Add(1) }, func() { r.admitting.Done() }))
	return nil
}

func (r *run) apply(happened event) error {
	if happened.Finish != "" {
		one, isKnown := r.known[happened.Finish]
		if !isKnown {
			return fmt.Errorf("no workload %s", happened.Finish)
		}
		delete(r.known, happened.Finish)
		key := workload.Key(one)
		r.queues.DeleteWorkload(r.log, key)
		r.queues.QueueAssociatedInadmissibleWorkloadsAfter(r.ctx, key, func() { _ = r.cache.DeleteWorkload(r.log, key) })
		r.queues.DeleteAndForgetWorkload(r.log, key)
		return client.IgnoreNotFound(r.client.Delete(r.ctx, one))
	}
	one := &kueue.Workload{}
	if err := json.Unmarshal(happened.Create, one); err != nil {
		return err
	}
	one.CreationTimestamp = metav1.NewTime(r.clock.Now())
	if err := r.client.Create(r.ctx, one); err != nil {
		return err
	}
	r.known[one.Name] = one
	return r.enter(one)
}

// enter queues a workload with all that its pods will ask for.
func (r *run) enter(one *kueue.Workload) error {
	complete := one.DeepCopy()
	workload.AdjustResources(r.ctx, r.client, complete)
	return r.queues.AddOrUpdateWorkload(r.log, complete)
}

// settle runs cycles until nothing changes any more: admissions enter the cache, and evicted workloads wait again.
func (r *run) settle() error {
	for round := 0; round < mostRounds; round++ {
		r.wake(r.ctx)
		changed, quiet := false, 0
		for cycle := 0; cycle < mostCycles && quiet < 3; cycle++ {
			if !r.hasHeads() {
				break // a cycle would wait for one
			}
			schedule(r.scheduler, r.ctx)
			r.admitting.Wait()
			now, err := r.observe()
			if err != nil {
				return err
			}
			if now {
				changed, quiet = true, 0
			} else {
				quiet++
			}
		}
		r.clock.Step(time.Second)
		if !changed && r.wake(r.ctx) == 0 {
			return nil
		}
	}
	return nil
}

func (r *run) hasHeads() bool {
	for name, waiting := range r.queues.Dump() {
		if len(waiting) > 0 && r.cache.ClusterQueueActive(name) {
			return true
		}
	}
	return false
}

// observe takes over what cycles wrote, and does what controllers do with it. It returns whether quota changed hands.
func (r *run) observe() (bool, error) {
	changed := false
	for _, name := range r.names() {
		before, now := r.known[name], &kueue.Workload{}
		if err := r.client.Get(r.ctx, client.ObjectKeyFromObject(before), now); err != nil {
			return false, err
		}
		r.known[name] = now
		key := workload.Key(now)
		held := workload.HasQuotaReservation(now)
		switch {
		case held && workload.IsEvicted(now):
			changed = true
			r.evictions[name] = append(r.evictions[name], reasonOf(now))
			told := meta.FindStatusCondition(now.Status.Conditions, kueue.WorkloadEvicted)
			// An update, as a patch in this client takes no admission away.
			workload.SetRequeuedCondition(now, told.Reason, told.Message, true)
			workload.UnsetQuotaReservationWithCondition(now, "Pending", told.Message, r.clock.Now())
			if err := r.client.Status().Update(r.ctx, now); err != nil {
				return false, err
			}
			again := now.DeepCopy()
			workload.AdjustResources(r.ctx, r.client, again)
			r.queues.QueueAssociatedInadmissibleWorkloadsAfter(r.ctx, key, func() {
				_ = r.cache.DeleteWorkload(r.log, key)
				_ = r.queues.AddOrUpdateWorkloadWithoutLock(r.log, again)
			})
		case held && !workload.HasQuotaReservation(before):
			changed = true
			r.queues.DeleteWorkload(r.log, key)
			admitted := now.DeepCopy()
			workload.AdjustResources(r.ctx, r.client, admitted)
			r.cache.AddOrUpdateWorkload(r.log, admitted)
		}
	}
	return changed, nil
}

func reasonOf(one *kueue.Workload) string {
	if told := meta.FindStatusCondition(one.Status.Conditions, kueue.WorkloadPreempted); told != nil {
		return told.Reason
	}
	return meta.FindStatusCondition(one.Status.Conditions, kueue.WorkloadEvicted).Reason
}

func (r *run) names() []string {
	found := make([]string, 0, len(r.known))
	for name := range r.known {
		found = append(found, name)
	}
	sort.Strings(found)
	return found
}

func (r *run) answers() ([]answer, error) {
	var found []answer
	for _, name := range r.names() {
		one := r.known[name]
		told := answer{Name: name, Evictions: r.evictions[name]}
		if workload.HasQuotaReservation(one) {
			for _, set := range one.Status.Admission.PodSetAssignments {
				var flavors []string
				for resource, flavor := range set.Flavors {
					flavors = append(flavors, fmt.Sprintf("%s=%s", resource, flavor))
				}
				sort.Strings(flavors)
				count := int32(0)
				if set.Count != nil {
					count = *set.Count
				}
				told.Admitted = append(told.Admitted, fmt.Sprintf("%s %d %s", set.Name, count, strings.Join(flavors, " ")))
			}
		} else if condition := meta.FindStatusCondition(one.Status.Conditions, kueue.WorkloadQuotaReserved); condition != nil {
			told.Reason, told.Message = condition.Reason, condition.Message
		}
		found = append(found, told)
	}
	return found, nil
}
