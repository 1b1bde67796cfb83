package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/nodes"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/replays"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/serving"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/stores"
)

// rowGroup is a family of rows that are measured together.
type rowGroup struct {
	name string
	// peers reports that the group needs the programs of others, apart that it is only measured when it is named: it takes long.
	peers, apart bool
	run          func(ctx context.Context, b *measure.Bench) error
}

var rows = []rowGroup{
	{name: "reads", peers: true, run: serving.Reads},
	{name: "ingest", peers: true, run: serving.Ingest},
	{name: "constant", run: stores.Constant},
	{name: "inprocess", run: stores.InProcess},
	{name: "disk", peers: true, run: stores.Disk},
	{name: "feed", peers: true, run: stores.Feed},
	{name: "seen", peers: true, run: stores.Seen},
	{name: "counters", peers: true, run: stores.Counters},
	{name: "replay", peers: true, run: replays.Replay},
	{name: "latency", apart: true, run: serving.UnderLoad},
	{name: "growth", apart: true, run: replays.Grow},
	{name: "nodes", apart: true, run: nodes.Nodes},
}

// RowNames returns the names that Only may hold.
func RowNames() []string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return names
}

// Run measures and returns what it found.
func Run(ctx context.Context, opts measure.Options) (*measure.Report, error) {
	wanted, err := pick(opts.Only)
	if err != nil {
		return nil, err
	}
	return measureGroups(ctx, opts, wanted)
}

// Compare measures two programs in turn and returns what it found.
func Compare(ctx context.Context, opts measure.Options) (*measure.Report, error) {
	return measureGroups(ctx, opts, []rowGroup{{name: "compare", run: serving.Compare}})
}

func measureGroups(ctx context.Context, opts measure.Options, wanted []rowGroup) (_ *measure.Report, err error) {
	if opts.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, opts.Limit, fmt.Errorf("it took longer than %v", opts.Limit))
		defer cancel()
	}
	b := &measure.Bench{Opts: opts, Program: opts.Head.Path}
	b.Tools, err = measure.FindTools()
	if err != nil && slices.ContainsFunc(wanted, func(r rowGroup) bool { return r.peers }) {
		return nil, err
	}
	if b.Dir, err = os.MkdirTemp(opts.Dir, "skein-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.Dir)) }()
	b.Report = &measure.Report{Settings: measure.Settings{
		Users: opts.Users, Edges: opts.Edges, Runs: opts.Runs, Seconds: opts.Time.Seconds(),
		IngestedFollows: opts.Follows, BigUser: opts.BigUser, Readers: opts.Readers, Plays: opts.Plays, Items: opts.Items,
		Replayed: opts.Replayed, Quick: opts.Quick,
		Base: opts.Base.Name, Head: opts.Head.Name,
	}}
	if opts.Posts != "" {
		b.Report.Settings.Posts = filepath.Base(opts.Posts)
	}
	if b.Report.Machine, err = measure.DescribeMachine(ctx, b.Tools, b.Dir); err != nil {
		return nil, err
	}
	for _, r := range wanted {
		if err := r.run(ctx, b); err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, explain(ctx, err))
		}
	}
	return b.Report, nil
}

// explain says why the context ended, if it did: what failed then is of no interest.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func pick(only []string) ([]rowGroup, error) {
	if len(only) == 0 {
		return slices.DeleteFunc(slices.Clone(rows), func(r rowGroup) bool { return r.apart }), nil
	}
	var wanted []rowGroup
	for _, name := range only {
		i := slices.IndexFunc(rows, func(r rowGroup) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no row is named %q; there are %s", name, strings.Join(RowNames(), ", "))
		}
		wanted = append(wanted, rows[i])
	}
	return wanted, nil
}
