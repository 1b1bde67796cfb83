package query

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type seenCmd struct {
	User         string   `arg:"" help:"The user whose plays and serves decide."`
	Candidates   []string `arg:"" name:"items" help:"Candidate items; - reads more from standard input, one per line."`
	WindowMonths int32    `help:"Calendar months for which plays count, the current one included; 0 means the default." default:"0"`
	IgnoreServed bool     `help:"Do not count as seen what was only served."`
}

// maxCandidates is how many candidates the service accepts in one call.
const maxCandidates = 10_000

// Run calls FilterSeen, as often as the number of candidates requires.
func (c *seenCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	candidates, err := c.readCandidates(std.In)
	if err != nil {
		return err
	}
	batches := slices.Collect(slices.Chunk(candidates, maxCandidates))
	if len(batches) == 0 {
		batches = [][]string{nil} // one call without candidates: the command still prints a position
	}

	unseen := 0
	last := &skeinv1.FilterSeenResponse{}
	for _, items := range batches {
		last, err = command.Call(ctx, &q.ClientFlags, q.Client().Seen().FilterSeen, &skeinv1.FilterSeenRequest{
			UserId: c.User, ItemIds: items, WindowMonths: c.WindowMonths, IgnoreServed: c.IgnoreServed, AtLeast: q.AtLeast,
		})
		if err != nil {
			return err
		}

		if q.JSON {
			err = command.PrintJSON(std.Out, last)
		} else {
			err = printIndexed(std.Out, items, last.GetUnseenIndexes())
		}
		if err != nil {
			return err
		}
		unseen += len(last.GetUnseenIndexes())
	}

	if !q.JSON {
		std.Sayf("%d of %d unseen, by plays of %d months, at position %s",
			unseen, len(candidates), last.GetMonthsRead(), last.GetPosition())
	}
	return nil
}

// readCandidates returns the candidates of the command line, with each "-" replaced by the lines of
// standard input that are not empty.
func (c *seenCmd) readCandidates(in io.Reader) (candidates []string, err error) {
	for _, item := range c.Candidates {
		if item != "-" {
			candidates = append(candidates, item)
			continue
		}
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			if line := lines.Text(); line != "" {
				candidates = append(candidates, line)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return candidates, nil
}

type servedCmd struct {
	User string `arg:"" help:"The user who was served."`
}

// Run calls ListServed.
func (c *servedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListServedRequest{UserId: c.User}
	return call(ctx, q, std, q.Client().Seen().ListServed, req, func(res *skeinv1.ListServedResponse) error {
		for _, item := range res.GetItemIds() {
			if _, err := fmt.Fprintln(std.Out, item); err != nil {
				return err
			}
		}
		return nil
	})
}

type hiddenItemsCmd struct {
	User      string `arg:"" help:"The user who hides items."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListHidden.
func (c *hiddenItemsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	rowOf := func(e *skeinv1.HiddenEntry) []string {
		return []string{e.GetItemId(), command.TimeText(e.GetHideTime())}
	}
	req := &skeinv1.ListHiddenRequest{UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Seen().ListHidden, req, []string{"ITEM", "SINCE"},
		func(res *skeinv1.ListHiddenResponse) [][]string { return mapRows(res.GetEntries(), rowOf) })
}
