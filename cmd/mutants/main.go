package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
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
	timeout := flags.Duration("timeout", 5*time.Minute, "limit of one run of one test")
	budget := flags.Duration("for", 0, "begin none after so long, and try them in random order; 0 means try all")
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
	if err := demand(mutants, *require); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "skein-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	groups := byPackage(mutants)
	ended := func() bool { return false }
	if *budget > 0 {
		shuffle(groups)
		end := time.Now().Add(*budget)
		ended = func() bool { return time.Now().After(end) }
	}
	verdicts := make([]*verdict, len(mutants))
	var printing sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(*jobs)
	for i, group := range groups {
		g.Go(func() error {
			r := &runner{
				root: dir, tmp: filepath.Join(tmp, strconv.Itoa(i)), timeout: *timeout,
				plain: make(map[test]error), binaries: make(map[string]string),
			}
			for _, at := range group {
				if ended() {
					return nil
				}
				v := r.try(ctx, mutants[at])
				if ctx.Err() != nil {
					return ctx.Err()
				}
				verdicts[at] = &v
				printing.Lock()
				v.print(out, *verbose)
				printing.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return report(out, verdicts)
}

// shuffle brings the groups, and what is in each, into random order.
func shuffle(groups [][]int) {
	rand.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	for _, g := range groups {
		rand.Shuffle(len(g), func(i, j int) { g[i], g[j] = g[j], g[i] })
	}
}

// byPackage returns the indexes of mutants in groups whose tests are of one package: tests without any change are built and
// run once. The largest come first.
func byPackage(mutants []mutant) [][]int {
	groups := map[string][]int{}
	for i, m := range mutants {
		groups[m.test.pkg] = append(groups[m.test.pkg], i)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0], b[0]))
	})
}

func (v *verdict) print(out io.Writer, verbose bool) {
	fmt.Fprintf(out, "%-8s  %-4s %s (%.1f s)\n", v, strings.Join(v.mutant.invariants, ","), v.mutant.name, v.elapsed.Seconds())
	if verbose || v.err == nil && !v.killed {
		fmt.Fprintln(out, v.output)
	}
	if v.err != nil {
		fmt.Fprintln(out, v.err)
	}
}

// demand reports which of the invariants in list, separated by commas, has no mutant.
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

// report prints the table and returns an error unless every mutant that was tried was killed; nil are those that were not tried.
func report(out io.Writer, verdicts []*verdict) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ninvariant\tmutant\tverdict\tseconds\ttest\n")
	tried := 0
	var alive []string
	for _, v := range verdicts {
		if v == nil {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%s\n",
			strings.Join(v.mutant.invariants, ","), v.mutant.name, v, v.elapsed.Seconds(), v.mutant.test)
		tried++
		if !v.killed || v.err != nil {
			alive = append(alive, v.mutant.name)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if alive != nil {
		return fmt.Errorf("%d of %d mutants were not killed: %s", len(alive), tried, strings.Join(alive, ", "))
	}
	if len(verdicts) == 0 {
		return errors.New("no mutants")
	}
	if tried < len(verdicts) {
		_, err := fmt.Fprintf(out, "\nthe %d mutants that were tried, of %d, were killed\n", tried, len(verdicts))
		return err
	}
	_, err := fmt.Fprintf(out, "\nall %d mutants were killed\n", tried)
	return err
}
