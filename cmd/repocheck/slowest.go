package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// printSlowest prints the n slowest packages and the n slowest tests of a file of durations.
// Subtests count as part of their test.
func printSlowest(path string, n int, out io.Writer) error {
	text, err := os.ReadFile(path) //nolint:gosec // whoever runs the gate names the folder
	if err != nil {
		return err
	}
	var packages, tests []duration
	for line := range strings.Lines(string(text)) {
		d, err := parseDuration(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case d.id.test == "":
			packages = append(packages, d)
		case !strings.Contains(d.id.test, "/"):
			tests = append(tests, d)
		}
	}

	for _, list := range []struct {
		title     string
		durations []duration
	}{{"slowest packages", packages}, {"slowest tests", tests}} {
		slices.SortStableFunc(list.durations, func(a, b duration) int { return cmp.Compare(b.seconds, a.seconds) })
		if _, err := fmt.Fprintf(out, "\n%s, in seconds\n", list.title); err != nil {
			return err
		}
		for _, d := range list.durations[:min(n, len(list.durations))] {
			name := strings.TrimSpace(d.id.pkg + " " + d.id.test)
			if _, err := fmt.Fprintf(out, "%8.1f  %-6s  %s\n", d.seconds, d.label, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseDuration reads one line of a file of durations.
func parseDuration(line string) (duration, error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 4 {
		return duration{}, fmt.Errorf("line %q has %d columns, want 4", line, len(fields))
	}
	seconds, err := strconv.ParseFloat(fields[3], 64)
	if err != nil {
		return duration{}, fmt.Errorf("line %q: seconds: %w", line, err)
	}
	return duration{label: fields[0], id: testID{fields[1], fields[2]}, seconds: seconds}, nil
}
