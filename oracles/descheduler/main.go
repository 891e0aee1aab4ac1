// Descheduler runs the plugins, the evictor and the policies of the descheduler on clusters in memory.
//
// It reads worlds (one JSON document per line) from standard input and writes each again with `runs`: the distinct outcomes of
// one descheduling cycle. The descheduler iterates over maps, so that a cycle is played several times. Nodes and the pods of a
// node come by name. An eviction makes its pod terminate at once. Times of pods move with the clock, so that their ages are
// those of the world.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sort"
	"time"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"
	"sigs.k8s.io/descheduler/pkg/api"
	"sigs.k8s.io/descheduler/pkg/descheduler"
	"sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	"sigs.k8s.io/descheduler/pkg/descheduler/metricscollector"
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	podutil "sigs.k8s.io/descheduler/pkg/descheduler/pod"
	"sigs.k8s.io/descheduler/pkg/features"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	"sigs.k8s.io/descheduler/pkg/framework/profile"
	frameworktypes "sigs.k8s.io/descheduler/pkg/framework/types"

	promapi "github.com/prometheus/client_golang/api"
)

type world struct {
	Name    string            `json:"name"`
	Now     time.Time         `json:"now"`
	Objects []json.RawMessage `json:"objects"`
	Policy  json.RawMessage   `json:"policy"`
	// Refused are the pods (namespace/name) whose eviction the API server refuses.
	Refused []string `json:"refused,omitempty"`
	// NodeUsage and PodUsage are what the metrics server says, by node and by namespace/name; Shares are the result of the
	// query to Prometheus, by node.
	NodeUsage map[string]corev1.ResourceList   `json:"nodeUsage,omitempty"`
	PodUsage  map[string][]corev1.ResourceList `json:"podUsage,omitempty"`
	Shares    map[string]float64               `json:"shares,omitempty"`
	// Tries is how often the cycle is played.
	Tries int       `json:"tries,omitempty"`
	Fault string    `json:"fault,omitempty"`
	Runs  []outcome `json:"runs,omitempty"`
}

type outcome struct {
	Evicted []eviction `json:"evicted"`
	Errors  []string   `json:"errors,omitempty"`
}

type eviction struct {
	Pod     string `json:"pod"`
	Profile string `json:"profile"`
	Plugin  string `json:"plugin"`
	Refused bool   `json:"refused,omitempty"`
}

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	descheduler.SetupPlugins()
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
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

// cluster is what plugins see: a client, and informers that are filled and never started.
type cluster struct {
	client  *fake.Clientset
	factory informers.SharedInformerFactory
	pods    cache.Indexer
	nodes   []*corev1.Node
	refused map[string]bool
	evicted []eviction
	world   *world
}

func (w *world) play() (found outcome, err error) {
	defer func() {
		if told := recover(); told != nil {
			err = fmt.Errorf("panic: %v", told)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	held, err := w.cluster()
	if err != nil {
		return found, err
	}
	policy, err := w.policy(held)
	if err != nil {
		return found, err
	}
	selector := labels.Everything()
	if policy.NodeSelector != nil {
		if selector, err = labels.Parse(*policy.NodeSelector); err != nil {
			return found, err
		}
	}
	evictor, err := evictions.NewPodEvictor(ctx, held.client, &events.FakeRecorder{}, held.factory.Core().V1().Pods().Informer(),
		features.DefaultMutableFeatureGate, evictions.NewOptions().
			WithMaxPodsToEvictPerNode(policy.MaxNoOfPodsToEvictPerNode).
			WithMaxPodsToEvictPerNamespace(policy.MaxNoOfPodsToEvictPerNamespace).
			WithMaxPodsToEvictTotal(policy.MaxNoOfPodsToEvictTotal).
			WithGracePeriodSeconds(policy.GracePeriodSeconds))
	if err != nil {
		return found, err
	}
	metrics := metricscollector.NewMetricsCollector(held.factory.Core().V1().Nodes().Lister(), w.metrics(), selector)
	if err := metrics.Collect(ctx); err != nil {
		return found, err
	}
	nodes := held.ready(selector)
	type runner interface {
		RunDeschedulePlugins(context.Context, []*corev1.Node) *frameworktypes.Status
		RunBalancePlugins(context.Context, []*corev1.Node) *frameworktypes.Status
	}
	var runners []runner
	for at, one := range policy.Profiles {
		options := []profile.Option{
			profile.WithClientSet(held.client), profile.WithSharedInformerFactory(held.factory), profile.WithPodEvictor(evictor),
			profile.WithGetPodsAssignedToNodeFnc(held.assigned), profile.WithProfileInstanceID(fmt.Sprint(at)),
			profile.WithPrometheusClient(func() promapi.Client { return &prometheus{w.Shares} }),
		}
		if w.NodeUsage != nil {
			options = append(options, profile.WithMetricsCollector(metrics))
		}
		made, err := profile.NewProfile(ctx, one, pluginregistry.PluginRegistry, options...)
		if err != nil {
			return found, err
		}
		runners = append(runners, made)
	}
	if len(nodes) >= 2 {
		for _, one := range runners {
			found.note(one.RunDeschedulePlugins(ctx, nodes))
		}
		for _, one := range runners {
			found.note(one.RunBalancePlugins(ctx, nodes))
		}
	}
	found.Evicted = held.evicted
	return found, nil
}

func (o *outcome) note(status *frameworktypes.Status) {
	if status != nil && status.Err != nil {
		o.Errors = append(o.Errors, status.Err.Error())
	}
}

// policy reads the policy as the descheduler does, from a file.
func (w *world) policy(held *cluster) (*api.DeschedulerPolicy, error) {
	file, err := os.CreateTemp("", "policy-*.json")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(w.Policy); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return descheduler.LoadPolicyConfig(file.Name(), held.client, pluginregistry.PluginRegistry)
}

func (w *world) cluster() (*cluster, error) {
	held := &cluster{refused: map[string]bool{}, world: w}
	for _, one := range w.Refused {
		held.refused[one] = true
	}
	later := time.Since(w.Now)
	var objects []runtime.Object
	for _, raw := range w.Objects {
		var head metav1.TypeMeta
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, err
		}
		made := map[string]func() runtime.Object{
			"Node": func() runtime.Object { return &corev1.Node{} }, "Pod": func() runtime.Object { return &corev1.Pod{} },
			"Namespace":             func() runtime.Object { return &corev1.Namespace{} },
			"PersistentVolumeClaim": func() runtime.Object { return &corev1.PersistentVolumeClaim{} },
			"PriorityClass":         func() runtime.Object { return &schedulingv1.PriorityClass{} },
			"PodDisruptionBudget":   func() runtime.Object { return &policyv1.PodDisruptionBudget{} },
		}[head.Kind]
		if made == nil {
			return nil, fmt.Errorf("kind %s is not played", head.Kind)
		}
		object := made()
		if err := json.Unmarshal(raw, object); err != nil {
			return nil, err
		}
		if pod, isPod := object.(*corev1.Pod); isPod {
			move(pod, later)
		}
		objects = append(objects, object)
	}
	held.client = fake.NewClientset(objects...)
	held.client.PrependReactor("create", "pods", held.evict)
	held.factory = informers.NewSharedInformerFactory(held.client, 0)
	held.pods = held.factory.Core().V1().Pods().Informer().GetIndexer()
	for _, object := range objects {
		var kept cache.Indexer
		switch one := object.(type) {
		case *corev1.Pod:
			kept = held.pods
		case *corev1.Node:
			kept = held.factory.Core().V1().Nodes().Informer().GetIndexer()
			held.nodes = append(held.nodes, one)
		case *corev1.Namespace:
			kept = held.factory.Core().V1().Namespaces().Informer().GetIndexer()
		case *corev1.PersistentVolumeClaim:
			kept = held.factory.Core().V1().PersistentVolumeClaims().Informer().GetIndexer()
		case *policyv1.PodDisruptionBudget:
			kept = held.factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer()
		default:
			continue
		}
		if err := kept.Add(object); err != nil {
			return nil, err
		}
	}
	sort.Slice(held.nodes, func(i, j int) bool { return held.nodes[i].Name < held.nodes[j].Name })
	return held, nil
}

// move takes the times of a pod along with the clock.
func move(pod *corev1.Pod, by time.Duration) {
	if !pod.CreationTimestamp.IsZero() {
		pod.CreationTimestamp.Time = pod.CreationTimestamp.Add(by)
	}
	for _, one := range []*metav1.Time{pod.DeletionTimestamp, pod.Status.StartTime} {
		if one != nil {
			one.Time = one.Add(by)
		}
	}
	for at := range pod.Status.Conditions {
		if since := &pod.Status.Conditions[at].LastTransitionTime; !since.IsZero() {
			since.Time = since.Add(by)
		}
	}
}

func (c *cluster) ready(selector labels.Selector) []*corev1.Node {
	var found []*corev1.Node
	for _, one := range c.nodes {
		if selector.Matches(labels.Set(one.Labels)) && nodeutil.IsReady(one) {
			found = append(found, one)
		}
	}
	return found
}

// assigned returns the pods of a node by namespace and name.
func (c *cluster) assigned(node string, filter podutil.FilterFunc) ([]*corev1.Pod, error) {
	var found []*corev1.Pod
	for _, one := range c.pods.List() {
		if pod := one.(*corev1.Pod); pod.Spec.NodeName == node {
			found = append(found, pod)
		}
	}
	sort.Slice(found, func(i, j int) bool {
		if found[i].Namespace != found[j].Namespace {
			return found[i].Namespace < found[j].Namespace
		}
		return found[i].Name < found[j].Name
	})
	kept := make([]*corev1.Pod, 0, len(found))
	for _, pod := range found {
		if filter == nil || filter(pod) {
			kept = append(kept, pod)
		}
	}
	return kept, nil
}

// evict is the eviction API: it notes who asked, and the pod terminates, or the answer is "too many requests".
func (c *cluster) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	asked := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
	key := asked.Namespace + "/" + asked.Name
	told := eviction{Pod: key, Refused: c.refused[key]}
	told.Profile, told.Plugin = readReason(asked.Annotations["reason"])
	c.evicted = append(c.evicted, told)
	if told.Refused {
		return true, nil, apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	}
	held, isThere, err := c.pods.GetByKey(key)
	if err != nil || !isThere {
		return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), asked.Name)
	}
	pod := held.(*corev1.Pod)
	if pod.DeletionTimestamp == nil {
		pod = pod.DeepCopy()
		now := metav1.Now()
		pod.DeletionTimestamp = &now
		return true, nil, c.pods.Update(pod)
	}
	return true, nil, nil
}

// readReason returns the profile and the plugin that an eviction names.
func readReason(text string) (string, string) {
	const begin = "triggered by "
	if len(text) < len(begin) {
		return "", ""
	}
	text = text[len(begin):]
	at := len(text)
	for i := range text {
		if text[i] == ':' {
			at = i
			break
		}
	}
	for i := at - 1; i >= 0; i-- {
		if text[i] == '/' {
			return text[:i], text[i+1 : at]
		}
	}
	return "", text[:at]
}

func (w *world) metrics() *metricsfake.Clientset {
	client := metricsfake.NewSimpleClientset()
	client.PrependReactor("get", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		usage, isKnown := w.NodeUsage[name]
		if !isKnown {
			return true, nil, apierrors.NewNotFound(metricsv1beta1.Resource("nodes"), name)
		}
		return true, &metricsv1beta1.NodeMetrics{ObjectMeta: metav1.ObjectMeta{Name: name}, Usage: usage}, nil
	})
	client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		containers, isKnown := w.PodUsage[action.GetNamespace()+"/"+name]
		if !isKnown {
			return true, nil, apierrors.NewNotFound(metricsv1beta1.Resource("pods"), name)
		}
		found := &metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: action.GetNamespace(), Name: name}}
		for at, usage := range containers {
			found.Containers = append(found.Containers, metricsv1beta1.ContainerMetrics{Name: fmt.Sprint("c", at), Usage: usage})
		}
		return true, found, nil
	})
	return client
}

// prometheus answers each query with the shares of a world.
type prometheus struct{ shares map[string]float64 }

func (p *prometheus) URL(string, map[string]string) *url.URL { return &url.URL{} }

func (p *prometheus) Do(context.Context, *http.Request) (*http.Response, []byte, error) {
	var found model.Vector
	for node, share := range p.shares {
		found = append(found, &model.Sample{Metric: model.Metric{"instance": model.LabelValue(node)}, Value: model.SampleValue(share)})
	}
	body, err := json.Marshal(map[string]any{
		"status": "success", "data": map[string]any{"resultType": "vector", "result": found},
	})
	return &http.Response{StatusCode: http.StatusOK}, body, err
}
