package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

// defaultTimeout is the limit of one run of one test. On a busy machine, the longest test takes some
// minutes. A test that hangs because of its mutant takes all of this time.
const defaultTimeout = 5 * time.Minute

// runMutants tries the mutants that the flags choose, prints a table, and fails unless a test
// noticed each of them.
func runMutants(ctx context.Context, flags *flag.FlagSet, args []string, out io.Writer) error {
	root := flags.String("root", ".", "root of the module")
	only := flags.String("only", "", "regular expression: only mutants whose path matches")
	gate := flags.Bool("gate", false, "only the first mutant that docs/invariants.md names for each invariant")
	timeout := flags.Duration("timeout", defaultTimeout, "limit of one run of one test with a mutant")
	jobs := flags.Int("jobs", runtime.GOMAXPROCS(0), "how many packages are worked on at a time")
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
	if *gate {
		if mutants, err = gateMutants(os.DirFS(dir), mutants); err != nil {
			return err
		}
	}

	tmp, err := os.MkdirTemp("", "skein-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	// The packages are worked on at the same time, and the mutants of a package one after the other.
	groups := groupByPackage(mutants)
	verdicts := make([]*verdict, len(mutants))
	var printing sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(*jobs)
	for i, group := range groups {
		g.Go(func() error {
			r := &runner{
				root: dir, tmp: filepath.Join(tmp, strconv.Itoa(i)), timeout: *timeout,
				unmutated: make(map[test]error), binaries: make(map[string]string),
			}
			for _, at := range group {
				v := r.tryMutant(ctx, mutants[at])
				// A test that was interrupted says nothing about the mutant.
				if ctx.Err() != nil {
					return ctx.Err()
				}
				verdicts[at] = &v
				printing.Lock()
				v.printLine(out, *verbose)
				printing.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return printReport(out, verdicts)
}

// groupByPackage groups mutants, given as indexes, by the package of their tests, so that the tests
// of a package are built without any change only once. The largest group comes first, because the
// groups run at the same time and the largest takes longest.
func groupByPackage(mutants []mutant) [][]int {
	groups := map[string][]int{}
	for i, m := range mutants {
		groups[m.test.pkg] = append(groups[m.test.pkg], i)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0], b[0]))
	})
}

// printLine prints the verdict in one line, and below it what explains a survival or an error.
func (v *verdict) printLine(out io.Writer, verbose bool) {
	fmt.Fprintf(out, "%-8s  %-4s %s (%.1f s)\n", v, strings.Join(v.mutant.invariants, ","), v.mutant.name, v.elapsed.Seconds())
	if verbose || v.err == nil && !v.killed {
		fmt.Fprintln(out, v.output)
	}
	if v.err != nil {
		fmt.Fprintln(out, v.err)
	}
}

// gateMutants returns the mutants that the merge gate tries: for each invariant the first one that
// docs/invariants.md names. The base names of mutants are unique.
func gateMutants(repo fs.FS, mutants []mutant) ([]mutant, error) {
	names, err := firstMutants(repo)
	if err != nil {
		return nil, err
	}

	var chosen []mutant
	for _, m := range mutants {
		if slices.Contains(names, mutantBaseName(m.name)) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) != len(names) {
		return nil, fmt.Errorf("%s names %d first mutants, and %d files have their names", invariantsPage, len(names), len(chosen))
	}
	return chosen, nil
}

// printReport prints the table and returns an error unless every mutant was killed.
func printReport(out io.Writer, verdicts []*verdict) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ninvariant\tmutant\tverdict\tseconds\ttest\n")
	var alive []string
	for _, v := range verdicts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%s\n",
			strings.Join(v.mutant.invariants, ","), v.mutant.name, v, v.elapsed.Seconds(), v.mutant.test)
		if !v.killed || v.err != nil {
			alive = append(alive, v.mutant.name)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if alive != nil {
		return fmt.Errorf("%d of %d mutants were not killed: %s", len(alive), len(verdicts), strings.Join(alive, ", "))
	}
	if len(verdicts) == 0 {
		return errors.New("no mutants")
	}
	_, err := fmt.Fprintf(out, "\nall %d mutants were killed\n", len(verdicts))
	return err
}
