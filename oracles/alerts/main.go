// Command alerts checks alerting rules and the queries of dashboards with Prometheus' own parsers.
//
//	alerts rules FILE...      the checks of `promtool check rules`
//	alerts queries            one PromQL expression a line on standard input
//	alerts play FILE          scenes on standard input, one JSON document a line: which alerts of the file fire
//
// It prints each fault on a line, and exits with 1 if there is one.
package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Println("usage: alerts rules FILE... | alerts queries | alerts play FILE")
		os.Exit(2)
	}
	faults := 0
	report := func(where string, err error) {
		faults++
		fmt.Printf("%s: %v\n", where, err)
	}
	expressions := parser.NewParser(parser.Options{})
	switch os.Args[1] {
	case "rules":
		for _, path := range os.Args[2:] {
			groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation, expressions, slog.Default())
			for _, err := range errs {
				report(path, err)
			}
			if groups != nil {
				count := 0
				for _, group := range groups.Groups {
					count += len(group.Rules)
				}
				fmt.Printf("%s: %d rules\n", path, count)
			}
		}
	case "queries":
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if _, err := expressions.ParseExpr(lines.Text()); err != nil {
				report(lines.Text(), err)
			}
		}
	case "play":
		if err := played(os.Args[2], os.Stdin, os.Stdout); err != nil {
			report(os.Args[2], err)
		}
	}
	if faults > 0 {
		os.Exit(1)
	}
}
