// Profiles asks one release of kube-scheduler which plugins a configuration enables.
//
// It reads documents (one JSON value per line: name and text) from standard input, and writes each with the field `expected`: the
// plugins of each profile by extension point, those that score with their weights, or why the document is refused.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

type document struct {
	Name     string   `json:"name"`
	Text     string   `json:"text"`
	Expected expected `json:"expected"`
}

type enabled struct {
	Name   string `json:"name"`
	Weight int32  `json:"weight,omitempty"`
}

type expected struct {
	Refused  string                          `json:"refused,omitempty"`
	Profiles map[string]map[string][]enabled `json:"profiles,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var one document
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		one.Expected = answer(one.Text)
		if err := out.Encode(one); err != nil {
			os.Exit(1)
		}
	}
}

func answer(text string) expected {
	read, _, err := configscheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		return expected{Refused: err.Error()}
	}
	config, ok := read.(*schedulerapi.KubeSchedulerConfiguration)
	if !ok {
		return expected{Refused: fmt.Sprintf("read as %T", read)}
	}
	if faults := validation.ValidateKubeSchedulerConfiguration(config); faults != nil {
		return expected{Refused: faults.Error()}
	}
	made, err := built(config)
	if err != nil {
		return expected{Refused: err.Error()}
	}
	found := expected{Profiles: map[string]map[string][]enabled{}}
	for name, framework := range made.Profiles {
		points := map[string][]enabled{}
		for point, plugins := range pluginsOf(framework.ListPlugins()) {
			points[point] = plugins
		}
		found.Profiles[name] = points
	}
	return found
}

// pluginsOf returns the plugins of each point of a profile. Their order is that in which they run.
func pluginsOf(listed *schedulerapi.Plugins) map[string][]enabled {
	found := map[string][]enabled{}
	sets := reflect.ValueOf(listed).Elem()
	for i := 0; i < sets.NumField(); i++ {
		set, ok := sets.Field(i).Interface().(schedulerapi.PluginSet)
		if !ok || len(set.Enabled) == 0 {
			continue
		}
		for _, plugin := range set.Enabled {
			found[sets.Type().Field(i).Name] = append(found[sets.Type().Field(i).Name], enabled{plugin.Name, plugin.Weight})
		}
	}
	return found
}

// built makes the scheduler. What New takes differs from release to release, so its arguments are chosen by their types.
func built(config *schedulerapi.KubeSchedulerConfiguration) (*scheduler.Scheduler, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	given := []any{
		ctx, ctx.Done(), client, informers.NewSharedInformerFactory(client, 0),
		profile.NewRecorderFactory(broadcaster),
	}
	options := []any{
		scheduler.WithComponentConfigVersion(config.TypeMeta.APIVersion),
		scheduler.WithProfiles(config.Profiles...),
		scheduler.WithExtenders(config.Extenders...),
	}
	new := reflect.ValueOf(scheduler.New)
	var arguments []reflect.Value
	for i := 0; i < new.Type().NumIn()-1; i++ {
		arguments = append(arguments, chosen(given, new.Type().In(i)))
	}
	for _, option := range options {
		arguments = append(arguments, reflect.ValueOf(option))
	}
	results := new.Call(arguments)
	if err, ok := results[1].Interface().(error); ok && err != nil {
		return nil, err
	}
	return results[0].Interface().(*scheduler.Scheduler), nil
}

func chosen(given []any, wanted reflect.Type) reflect.Value {
	for _, one := range given {
		if reflect.TypeOf(one).AssignableTo(wanted) {
			return reflect.ValueOf(one)
		}
	}
	return reflect.Zero(wanted)
}

