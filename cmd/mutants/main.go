package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	root := flags.String("root", ".", "root of the module")
	only := flags.String("only", "", "regular expression: only mutants whose path matches")
	require := flags.String("require", "", "invariants that must have a mutant, as in I1,I2")
	timeout := flags.Duration("timeout", 2*time.Minute, "limit of one run of one test")
	verbose := flags.Bool("v", false, "print what the tests print")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	mutants, err := findMutants(os.DirFS(dir), pattern)
	if err != nil {
		return err
	}
	if err := demand(mutants, *require); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "skein-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	r := &runner{root: dir, tmp: tmp, timeout: *timeout, plain: make(map[test]error), binaries: make(map[string]string)}
	var verdicts []verdict
	for _, m := range mutants {
		v := r.try(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintf(out, "%-8s  %-4s %s (%.1f s)\n", v, strings.Join(m.invariants, ","), m.name, v.elapsed.Seconds())
		if *verbose || v.err == nil && !v.killed {
			fmt.Fprintln(out, v.output)
		}
		if v.err != nil {
			fmt.Fprintln(out, v.err)
		}
		verdicts = append(verdicts, v)
	}
	return report(out, verdicts)
}

// demand tells which of the invariants in list, separated by commas, has no mutant.
func demand(mutants []mutant, list string) error {
	var missing []string
	for want := range strings.SplitSeq(list, ",") {
		has := func(m mutant) bool { return slices.Contains(m.invariants, want) }
		if want != "" && !slices.ContainsFunc(mutants, has) {
			missing = append(missing, want)
		}
	}
	if missing != nil {
		return fmt.Errorf("no mutant for %s", strings.Join(missing, ", "))
	}
	return nil
}

// report prints the table and returns an error unless every mutant was killed.
func report(out io.Writer, verdicts []verdict) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ninvariant\tmutant\tverdict\tseconds\ttest\n")
	alive := 0
	for _, v := range verdicts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%s\n",
			strings.Join(v.mutant.invariants, ","), v.mutant.name, v, v.elapsed.Seconds(), v.mutant.test)
		if !v.killed || v.err != nil {
			alive++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if alive > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", alive, len(verdicts))
	}
	if len(verdicts) == 0 {
		return fmt.Errorf("no mutants")
	}
	_, err := fmt.Fprintf(out, "\nall %d mutants were killed\n", len(verdicts))
	return err
}
