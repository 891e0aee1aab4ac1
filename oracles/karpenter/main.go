// Karpenter runs the provisioner and the disruption methods of Karpenter on clusters in memory.
//
// It reads worlds (one JSON document per line) from standard input and writes each again with `runs`: the distinct answers to
// what is asked. Instance types are those of Karpenter's KWOK provider, or written out with their requirements. Objects live in
// a client in memory, and time stands still at that of the world: waiting takes none.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"
	"unsafe"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

type world struct {
	Name    string            `json:"name"`
	Now     float64           `json:"now"`
	Objects []json.RawMessage `json:"objects"`
	// Types is a list in the form of the KWOK provider, or Exact types with all their requirements.
	Types      json.RawMessage `json:"types,omitempty"`
	Exact      []exactType     `json:"exact,omitempty"`
	SpotToSpot bool            `json:"spotToSpot,omitempty"`
	// Asks names what is asked: "plan", "verdicts", "command", or "compute" for Candidates.
	Asks       []string `json:"asks"`
	Candidates []string `json:"candidates,omitempty"`
	// Most is the number of types that a claim may have; 0 is Karpenter's own.
	Most  int      `json:"most,omitempty"`
	Tries int      `json:"tries,omitempty"`
	Fault string   `json:"fault,omitempty"`
	Runs  []answer `json:"runs,omitempty"`
}

type exactType struct {
	Name         string              `json:"name"`
	Requirements []exactRequirement  `json:"requirements"`
	Capacity     corev1.ResourceList `json:"capacity"`
	Overhead     corev1.ResourceList `json:"overhead"`
	Offerings    []struct {
		Requirements []exactRequirement `json:"requirements"`
		Price        float64            `json:"price"`
		Available    bool               `json:"available"`
	} `json:"offerings"`
}

type exactRequirement struct {
	Key        string   `json:"key"`
	Values     []string `json:"values"`
	Complement bool     `json:"complement,omitempty"`
}

type answer struct {
	Plan     *plan              `json:"plan,omitempty"`
	Verdicts map[string]command `json:"verdicts,omitempty"`
	Command  *command           `json:"command,omitempty"`
	Compute  *command           `json:"compute,omitempty"`
}

type plan struct {
	Claims   []claim             `json:"claims"`
	Existing map[string][]string `json:"existing"`
	Errors   map[string]string   `json:"errors"`
}

type claim struct {
	Pool         string   `json:"pool"`
	Pods         []string `json:"pods"`
	Types        []string `json:"types"`
	Requirements []string `json:"requirements,omitempty"`
}

type command struct {
	Decision string   `json:"decision"`
	Reason   string   `json:"reason,omitempty"`
	Removed  []string `json:"removed,omitempty"`
	Types    []string `json:"types,omitempty"`
	Why      string   `json:"why,omitempty"`
}

// computeConsolidation is the method of what each method of consolidation begins with.
//
//go:linkname computeConsolidation sigs.k8s.io/karpenter/pkg/controllers/disruption.(*consolidation).computeConsolidation
func computeConsolidation(unsafe.Pointer, context.Context, ...*disruption.Candidate) (disruption.Command, error)

var (
	wellKnown = v1.WellKnownLabels.Clone()
	mostTypes = scheduling.MaxInstanceTypes
)

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	ctrl.SetLogger(logr.Discard())
	decoder := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for {
		given := &world{}
		if err := decoder.Decode(given); err == io.EOF {
			return
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		given.answer()
		if err := encoder.Encode(given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func (w *world) answer() {
	seen := map[string]bool{}
	for range max(w.Tries, 1) {
		found, err := w.play()
		if err != nil {
			w.Fault = err.Error()
			return
		}
		text, _ := json.Marshal(found)
		if !seen[string(text)] {
			seen[string(text)] = true
			w.Runs = append(w.Runs, found)
		}
	}
}

// clock stands still, and what waits for it is woken at once.
type clock struct{ *testingclock.FakeClock }

func (c clock) After(time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	fired <- c.Now()
	return fired
}

// told keeps what Karpenter says of nodes.
type told struct{ texts map[string][]string }

func (t *told) Publish(published ...events.Event) {
	for _, one := range published {
		if node, isNode := one.InvolvedObject.(*corev1.Node); isNode {
			t.texts[node.Name] = append(t.texts[node.Name], one.Message)
		}
	}
}

// provider is the KWOK provider, with the node classes of Karpenter's own tests beside its own.
type provider struct{ *kwok.CloudProvider }

func (p provider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&kwokv1alpha1.KWOKNodeClass{}, &testv1alpha1.TestNodeClass{}}
}

// valid takes a command as it is: time stands still, so it holds a moment later.
type valid struct{}

func (valid) Validate(_ context.Context, given disruption.Command, _ time.Duration) (disruption.Command, error) {
	return given, nil
}

type scene struct {
	ctx      context.Context
	clock    clock
	client   client.Client
	provider provider
	cluster  *state.Cluster
	told     *told
	world    *world
}

func (w *world) play() (found answer, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	for _, asked := range w.Asks {
		held, err := w.scene() // a plan nominates nodes, which no other question is about
		if err != nil {
			return found, err
		}
		switch asked {
		case "plan":
			found.Plan, err = held.plan()
		case "verdicts":
			found.Verdicts, err = held.verdicts()
		case "command":
			found.Command, err = held.command()
		case "compute":
			found.Compute, err = held.compute()
		default:
			err = fmt.Errorf("%q is none of plan, verdicts, command, compute", asked)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func (w *world) scene() (*scene, error) {
	held := &scene{told: &told{map[string][]string{}}, world: w}
	whole := int64(w.Now)
	held.clock = clock{testingclock.NewFakeClock(time.Unix(whole, int64((w.Now-float64(whole))*1e9)).UTC())}
	gates := options.DefaultFeatureGates()
	gates.SpotToSpotConsolidation = w.SpotToSpot
	held.ctx = options.ToContext(context.Background(), &options.Options{
		CPURequests: 1000, PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict,
		BatchMaxDuration: 10 * time.Second, BatchIdleDuration: time.Second, IgnoreDRARequests: true, FeatureGates: gates,
	})
	v1.WellKnownLabels = wellKnown.Clone()
	scheduling.MaxInstanceTypes = mostTypes
	if w.Most > 0 {
		scheduling.MaxInstanceTypes = w.Most
	}
	types, err := w.types(held.ctx)
	if err != nil {
		return nil, err
	}
	objects, err := w.read()
	if err != nil {
		return nil, err
	}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...)
	index(builder)
	held.client = builder.Build()
	held.provider = provider{kwok.NewCloudProvider(held.ctx, held.client, types)}
	held.cluster = state.NewCluster(held.clock, held.client, held.provider)
	// Claims come before nodes, and nodes before the pods on them, as when Karpenter starts.
	for _, one := range objects {
		if claimed, isClaim := one.(*v1.NodeClaim); isClaim {
			held.cluster.UpdateNodeClaim(claimed.DeepCopy())
		}
	}
	for _, one := range objects {
		if node, isNode := one.(*corev1.Node); isNode {
			if err := held.cluster.UpdateNode(held.ctx, node.DeepCopy()); err != nil {
				return nil, err
			}
		}
	}
	for _, one := range objects {
		switch known := one.(type) {
		case *corev1.Pod:
			// A pod of a node that is not there is tried again when the node comes.
			if err := held.cluster.UpdatePod(held.ctx, known.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
		case *appsv1.DaemonSet:
			if err := held.cluster.UpdateDaemonSet(held.ctx, known.DeepCopy()); err != nil {
				return nil, err
			}
		}
	}
	return held, nil
}

// read returns the objects. A NodePool without conditions is ready.
func (w *world) read() ([]client.Object, error) {
	var found []client.Object
	decoder := scheme.Codecs.UniversalDeserializer()
	for _, raw := range w.Objects {
		made, kind, err := decoder.Decode(raw, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in %.80s", err, raw)
		}
		one, isObject := made.(client.Object)
		if !isObject {
			return nil, fmt.Errorf("kind %s is no object", kind.Kind)
		}
		if pool, isPool := one.(*v1.NodePool); isPool && len(pool.Status.Conditions) == 0 {
			pool.StatusConditions().SetTrue(v1.ConditionTypeValidationSucceeded)
			pool.StatusConditions().SetTrue(v1.ConditionTypeNodeClassReady)
		}
		if one.GetDeletionTimestamp() != nil && len(one.GetFinalizers()) == 0 {
			one.SetFinalizers([]string{"moorage.dev/kept"}) // the client in memory has no others that are being deleted
		}
		found = append(found, one)
	}
	return found, nil
}

func index(builder *fake.ClientBuilder) {
	add := func(object client.Object, field string, value func(client.Object) string) {
		builder.WithIndex(object, field, func(one client.Object) []string { return []string{value(one)} })
	}
	add(&corev1.Pod{}, "spec.nodeName", func(one client.Object) string { return one.(*corev1.Pod).Spec.NodeName })
	add(&corev1.Node{}, "spec.providerID", func(one client.Object) string { return one.(*corev1.Node).Spec.ProviderID })
	add(&v1.NodeClaim{}, "status.providerID", func(one client.Object) string { return one.(*v1.NodeClaim).Status.ProviderID })
	for field, value := range map[string]func(*v1.NodeClassReference) string{
		"group": func(of *v1.NodeClassReference) string { return of.Group },
		"kind":  func(of *v1.NodeClassReference) string { return of.Kind },
		"name":  func(of *v1.NodeClassReference) string { return of.Name },
	} {
		add(&v1.NodeClaim{}, "spec.nodeClassRef."+field, func(one client.Object) string {
			return value(one.(*v1.NodeClaim).Spec.NodeClassRef)
		})
		add(&v1.NodePool{}, "spec.template.spec.nodeClassRef."+field, func(one client.Object) string {
			return value(one.(*v1.NodePool).Spec.Template.Spec.NodeClassRef)
		})
	}
}

func (w *world) types(ctx context.Context) ([]*cloudprovider.InstanceType, error) {
	if w.Exact != nil {
		return lo.Map(w.Exact, func(one exactType, _ int) *cloudprovider.InstanceType { return one.made() }), nil
	}
	file, err := os.CreateTemp("", "types-*.json")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(w.Types); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return kwok.ConstructInstanceTypes(kwokoptions.ToContext(ctx, &kwokoptions.Options{InstanceTypesFilePath: file.Name()}))
}

func (t exactType) made() *cloudprovider.InstanceType {
	found := &cloudprovider.InstanceType{
		Name: t.Name, Capacity: t.Capacity, Requirements: made(t.Requirements),
		Overhead: &cloudprovider.InstanceTypeOverhead{KubeReserved: t.Overhead},
	}
	for _, one := range t.Offerings {
		found.Offerings = append(found.Offerings, &cloudprovider.Offering{
			Requirements: made(one.Requirements), Price: one.Price, Available: one.Available,
		})
	}
	return found
}

// made returns requirements; their labels are well known, as a provider's are.
func made(given []exactRequirement) requirements.Requirements {
	found := requirements.NewRequirements()
	for _, one := range given {
		operator := corev1.NodeSelectorOpIn
		switch {
		case one.Complement && len(one.Values) == 0:
			operator = corev1.NodeSelectorOpExists
		case one.Complement:
			operator = corev1.NodeSelectorOpNotIn
		case len(one.Values) == 0:
			operator = corev1.NodeSelectorOpDoesNotExist
		}
		found.Add(requirements.NewRequirement(one.Key, operator, one.Values...))
		v1.WellKnownLabels = v1.WellKnownLabels.Insert(one.Key)
	}
	return found
}

func (s *scene) provisioner() *provisioning.Provisioner {
	return provisioning.NewProvisioner(s.client, s.told, s.provider, s.cluster, s.clock,
		deviceallocation.NewController(s.client), virtualpods.NewVirtualPodCache(s.client))
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func keys(pods []*corev1.Pod) []string {
	found := lo.Map(pods, func(one *corev1.Pod, _ int) string { return key(one) })
	sort.Strings(found)
	return found
}

func typeNames(claims ...*scheduling.NodeClaim) []string {
	found := []string{}
	for _, one := range claims {
		for _, held := range one.InstanceTypeOptions {
			found = append(found, held.Name)
		}
	}
	sort.Strings(found)
	return found
}

func (s *scene) plan() (*plan, error) {
	results, err := s.provisioner().Schedule(s.ctx)
	if err != nil {
		return nil, err
	}
	found := &plan{Claims: []claim{}, Existing: map[string][]string{}, Errors: map[string]string{}}
	for _, one := range results.NewNodeClaims {
		var asked []string
		for name, held := range one.Requirements {
			if name != corev1.LabelInstanceTypeStable && name != corev1.LabelHostname {
				asked = append(asked, held.String())
			}
		}
		sort.Strings(asked)
		found.Claims = append(found.Claims, claim{one.NodePoolName, keys(one.Pods), typeNames(one), asked})
	}
	sort.Slice(found.Claims, func(i, j int) bool { return fmt.Sprint(found.Claims[i]) < fmt.Sprint(found.Claims[j]) })
	for _, one := range results.ExistingNodes {
		if len(one.Pods) > 0 {
			found.Existing[one.Name()] = keys(one.Pods)
		}
	}
	for pod, problem := range results.PodErrors {
		found.Errors[key(pod)] = problem.Error()
	}
	return found, nil
}

// methods returns those of disruption as Karpenter tries them, or those that look at one node, with how commands are validated.
func (s *scene) methods(validated ...disruption.Validator) []disruption.Method {
	provisioner := s.provisioner()
	queue := disruption.NewQueue(s.client, s.told, s.cluster, s.clock, provisioner)
	made := disruption.MakeConsolidation(s.clock, s.cluster, s.client, provisioner, s.provider, s.told, queue)
	if len(validated) == 0 {
		return lo.Reject(disruption.NewMethods(s.clock, s.cluster, s.client, provisioner, s.provider, s.told, queue),
			func(one disruption.Method, _ int) bool { _, isStatic := one.(*disruption.StaticDrift); return isStatic })
	}
	return []disruption.Method{
		disruption.NewEmptiness(made, disruption.WithValidator(validated[0])),
		disruption.NewDrift(s.client, s.cluster, provisioner, s.told, s.clock),
		disruption.NewSingleNodeConsolidation(made, disruption.WithValidator(validated[0])),
	}
}

// choose asks one method about the nodes of these names, or of all for nil.
func (s *scene) choose(method disruption.Method, names sets.Set[string]) ([]disruption.Command, error) {
	queue := disruption.NewQueue(s.client, s.told, s.cluster, s.clock, s.provisioner())
	candidates, totals, err := disruption.GetCandidatesWithTotals(
		s.ctx, s.cluster, s.client, s.told, s.clock, s.provider, method.ShouldDisrupt, method.Class(), queue, nil)
	if err != nil {
		return nil, err
	}
	if names != nil {
		candidates = lo.Filter(candidates, func(one *disruption.Candidate, _ int) bool { return names.Has(one.Name()) })
	}
	if len(candidates) == 0 {
		return nil, nil
	}
	if setter, isSetter := method.(disruption.NodePoolTotalsSetter); isSetter {
		setter.SetNodePoolTotals(totals)
	}
	budgets, err := disruption.BuildDisruptionBudgetMapping(
		s.ctx, s.cluster, s.clock, s.client, s.provider, s.told, method.Reason())
	if err != nil {
		return nil, err
	}
	sort.Slice(candidates, func(i, j int) bool { return candidates[i].Name() < candidates[j].Name() })
	found, err := method.ComputeCommands(s.ctx, budgets, candidates...)
	return lo.Filter(found, func(one disruption.Command, _ int) bool { return one.Decision() != disruption.NoOpDecision }), err
}

func written(given disruption.Command, method disruption.Method) command {
	removed := given.SourceNodeNames()
	sort.Strings(removed)
	claims := lo.Map(given.Replacements, func(one *disruption.Replacement, _ int) *scheduling.NodeClaim { return one.NodeClaim })
	return command{string(given.Decision()), string(method.Reason()), removed, typeNames(claims...), ""}
}

// verdicts asks about each node alone: whether it goes as empty, as drifted, or by consolidation.
func (s *scene) verdicts() (map[string]command, error) {
	found := map[string]command{}
	names := []string{}
	for node := range s.cluster.Nodes() {
		if node.Node != nil {
			names = append(names, node.Node.Name)
		}
	}
	for _, name := range names {
		s.told.texts = map[string][]string{}
		found[name] = command{Decision: string(disruption.NoOpDecision)}
		for _, method := range s.methods(valid{}) {
			chosen, err := s.choose(method, sets.New(name))
			if err != nil {
				return nil, err
			}
			if len(chosen) > 0 {
				found[name] = written(chosen[0], method)
				break
			}
		}
		if texts := s.told.texts[name]; found[name].Decision == string(disruption.NoOpDecision) && len(texts) > 0 {
			kept := found[name]
			kept.Why = strings.Join(lo.Uniq(texts), " | ")
			found[name] = kept
		}
	}
	return found, nil
}

// command asks for the next disruption.
func (s *scene) command() (*command, error) {
	for _, method := range s.methods() {
		chosen, err := s.choose(method, nil)
		if err != nil {
			return nil, err
		}
		if len(chosen) > 0 {
			found := written(chosen[0], method)
			return &found, nil
		}
	}
	return &command{Decision: string(disruption.NoOpDecision)}, nil
}

// compute asks what consolidation does with the candidates together, whatever their conditions and budgets.
func (s *scene) compute() (*command, error) {
	provisioner := s.provisioner()
	queue := disruption.NewQueue(s.client, s.told, s.cluster, s.clock, provisioner)
	method := disruption.NewMultiNodeConsolidation(
		disruption.MakeConsolidation(s.clock, s.cluster, s.client, provisioner, s.provider, s.told, queue))
	candidates, err := disruption.GetCandidates(s.ctx, s.cluster, s.client, s.told, s.clock, s.provider,
		func(context.Context, *disruption.Candidate) bool { return true }, method.Class(), queue)
	if err != nil {
		return nil, err
	}
	byName := lo.KeyBy(candidates, func(one *disruption.Candidate) string { return one.Name() })
	var chosen []*disruption.Candidate
	for _, name := range s.world.Candidates {
		if byName[name] == nil {
			return nil, fmt.Errorf("node %s is no candidate: %s", name, strings.Join(s.told.texts[name], " | "))
		}
		chosen = append(chosen, byName[name])
	}
	s.told.texts = map[string][]string{}
	made, err := computeConsolidation(unsafe.Pointer(method), s.ctx, chosen...)
	if err != nil {
		return nil, err
	}
	found := written(made, method)
	if found.Decision == string(disruption.NoOpDecision) && len(chosen) == 1 {
		found.Why = strings.Join(lo.Uniq(s.told.texts[chosen[0].Name()]), " | ")
	}
	return &found, nil
}
