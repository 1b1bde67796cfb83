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

// rowGroup is a group of rows that are measured together.
type rowGroup struct {
	name string
	// needsTools says that the group needs the programs of other projects.
	needsTools bool
	// onlyIfNamed says that the group is measured only if it is named, because it takes long.
	onlyIfNamed bool
	measure     func(ctx context.Context, b *measure.Bench) error
}

var groups = []rowGroup{
	{name: "reads", needsTools: true, measure: serving.MeasureReads},
	{name: "ingest", needsTools: true, measure: serving.MeasureIngest},
	{name: "constant", measure: stores.MeasureFollowCost},
	{name: "inprocess", measure: stores.MeasureFollowChecks},
	{name: "disk", needsTools: true, measure: stores.MeasureBytesPerFollow},
	{name: "feed", needsTools: true, measure: stores.MeasureFeed},
	{name: "seen", needsTools: true, measure: stores.MeasureSeen},
	{name: "counters", needsTools: true, measure: stores.MeasureCounters},
	{name: "notifications", needsTools: true, measure: stores.MeasureNotifications},
	{name: "replay", needsTools: true, measure: replays.MeasureReplay},
	{name: "plays", onlyIfNamed: true, measure: replays.MeasurePlays},
	{name: "latency", onlyIfNamed: true, measure: serving.MeasureUnderLoad},
	{name: "growth", onlyIfNamed: true, measure: replays.MeasureGrowth},
	{name: "nodes", onlyIfNamed: true, measure: nodes.MeasureNodes},
}

// GroupNames returns the names of all groups of rows, which [measure.Options.Only] can have.
func GroupNames() []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return names
}

// Run measures the groups that the options name and returns the report.
func Run(ctx context.Context, opts measure.Options) (*measure.Report, error) {
	chosen, err := chooseGroups(opts.Only)
	if err != nil {
		return nil, err
	}
	return measureGroups(ctx, opts, chosen)
}

// Compare measures the base and the head in turn and returns the report.
func Compare(ctx context.Context, opts measure.Options) (*measure.Report, error) {
	return measureGroups(ctx, opts, []rowGroup{{name: "compare", measure: serving.MeasurePrograms}})
}

// measureGroups measures groups of rows one after the other, in a temporary directory that it
// removes at the end.
func measureGroups(ctx context.Context, opts measure.Options, chosen []rowGroup) (_ *measure.Report, err error) {
	if opts.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, opts.Limit, fmt.Errorf("the bench took longer than --limit, %v", opts.Limit))
		defer cancel()
	}

	b := &measure.Bench{Opts: opts, Program: opts.Head.Path}
	b.Tools, err = measure.FindTools()
	if err != nil && slices.ContainsFunc(chosen, func(g rowGroup) bool { return g.needsTools }) {
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

	for _, g := range chosen {
		if err := g.measure(ctx, b); err != nil {
			// If the context has ended, err is only the first call that noticed it.
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return nil, fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return b.Report, nil
}

// chooseGroups returns the groups with these names. Without names it returns all groups that need
// not be named.
func chooseGroups(names []string) ([]rowGroup, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(groups), func(g rowGroup) bool { return g.onlyIfNamed }), nil
	}
	var chosen []rowGroup
	for _, name := range names {
		i := slices.IndexFunc(groups, func(g rowGroup) bool { return g.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--only: there is no group %q: the groups are %s", name, strings.Join(GroupNames(), ", "))
		}
		chosen = append(chosen, groups[i])
	}
	return chosen, nil
}
