package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"sort"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
)

// A scene is what Prometheus scraped, from time 0 on: series in the notation of promtool's unit tests.
type scene struct {
	Name string
	// Step is the time between two values of a series, and from one evaluation of the rules to the next.
	Step   model.Duration
	Series map[string]string
	// Until is when the answer is asked for.
	Until model.Duration
}

// A firing alert, with the summary that people read.
type firing struct {
	Alert   string `json:"alert"`
	Summary string `json:"summary"`
}

// played evaluates all rules of a file over each scene, and writes which alerts fire at its end.
func played(path string, scenes io.Reader, out io.Writer) error {
	expressions := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation, expressions, slog.Default())
	if len(errs) > 0 {
		return errs[0]
	}
	decoder, encoder := json.NewDecoder(scenes), json.NewEncoder(out)
	for {
		var one scene
		if err := decoder.Decode(&one); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		found, err := one.play(groups, expressions)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
		if err := encoder.Encode(map[string]any{"name": one.Name, "firing": found}); err != nil {
			return err
		}
	}
}

func (s scene) play(groups *rulefmt.RuleGroups, expressions parser.Parser) ([]firing, error) {
	store, err := teststorage.NewWithError()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ctx, step := context.Background(), time.Duration(s.Step)
	adding := store.Appender(ctx)
	for name, written := range s.Series {
		series, values, err := expressions.ParseSeriesDesc(name + " " + written)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for at, value := range values {
			if value.Omitted {
				continue
			}
			if _, err := adding.Append(0, series, (time.Duration(at) * step).Milliseconds(), value.Value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if err := adding.Commit(); err != nil {
		return nil, err
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, Parser: expressions,
		NoStepSubqueryIntervalFn: func(int64) int64 { return step.Milliseconds() },
	})
	defer engine.Close()
	query := rules.EngineQueryFunc(engine, store)
	found := []firing{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			expression, err := expressions.ParseExpr(rule.Expr)
			if err != nil {
				return nil, err
			}
			alert := rules.NewAlertingRule(
				rule.Alert, expression, time.Duration(rule.For), time.Duration(rule.KeepFiringFor), labels.FromMap(rule.Labels),
				labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.Default(),
			)
			for at := time.Duration(0); at <= time.Duration(s.Until); at += step {
				if _, err := alert.Eval(ctx, 0, time.UnixMilli(at.Milliseconds()), query, &url.URL{}, 0); err != nil {
					return nil, fmt.Errorf("%s: %w", rule.Alert, err)
				}
			}
			for _, one := range alert.ActiveAlerts() {
				if one.State == rules.StateFiring {
					found = append(found, firing{rule.Alert, one.Annotations.Get("summary")})
				}
			}
		}
	}
	sort.Slice(found, func(a, b int) bool {
		return found[a].Alert+found[a].Summary < found[b].Alert+found[b].Summary
	})
	return found, nil
}
