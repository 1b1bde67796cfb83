package query

import (
	"bufio"
	"context"
	"io"
	"slices"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type seenCmd struct {
	User         string   `arg:"" help:"Whose history."`
	Items        []string `arg:"" help:"Candidate items; - reads more from standard input, one a line."`
	WindowMonths int32    `help:"Calendar months for which plays count, the current one included; 0 means the default." default:"0"`
	IgnoreServed bool     `help:"Look at plays only, not at what was served."`
}

// maxCandidates is the most candidates of one call.
const maxCandidates = 10_000

// Run calls FilterSeen, as often as the number of candidates requires.
func (c *seenCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	candidates, err := c.candidates(std.In)
	if err != nil {
		return err
	}
	calls := slices.Collect(slices.Chunk(candidates, maxCandidates))
	if len(calls) == 0 {
		calls = [][]string{nil} // even without candidates the answer has a position
	}
	unseen, last := 0, &skeinv1.FilterSeenResponse{}
	for _, items := range calls {
		last, err = command.Call(ctx, &q.ClientFlags, q.Client().Seen().FilterSeen, c.request(q, items))
		if err != nil {
			return err
		}
		if q.JSON {
			if err := command.PrintJSON(std.Out, last); err != nil {
				return err
			}
			continue
		}
		for _, i := range last.GetUnseenIndexes() {
			if int(i) >= len(items) {
				continue
			}
			if _, err := io.WriteString(std.Out, items[i]+"\n"); err != nil {
				return err
			}
		}
		unseen += len(last.GetUnseenIndexes())
	}
	if !q.JSON {
		std.Sayf("%d of %d unseen, by plays of %d months, at position %s",
			unseen, len(candidates), last.GetMonthsRead(), last.GetPosition())
	}
	return nil
}

// candidates returns the arguments, with each "-" replaced by the lines of standard input.
func (c *seenCmd) candidates(in io.Reader) (all []string, err error) {
	for _, item := range c.Items {
		if item != "-" {
			all = append(all, item)
			continue
		}
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			if line := lines.Text(); line != "" {
				all = append(all, line)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *seenCmd) request(q *Cmd, items []string) *skeinv1.FilterSeenRequest {
	return &skeinv1.FilterSeenRequest{
		UserId: c.User, ItemIds: items, WindowMonths: c.WindowMonths, IgnoreServed: c.IgnoreServed, AtLeast: q.AtLeast,
	}
}

type servedCmd struct {
	User string `arg:"" help:"Whose serves."`
}

// Run calls ListServed.
func (c *servedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Seen().ListServed, &skeinv1.ListServedRequest{
		UserId: c.User, AtLeast: q.AtLeast,
	})
	if err != nil {
		return err
	}
	return q.print(std, res, func() error {
		for _, item := range res.GetItemIds() {
			if _, err := io.WriteString(std.Out, item+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
}

type hiddenItemsCmd struct {
	User      string `arg:"" help:"Whose hidden items."`
	pageFlags `embed:""`
}

// Run calls ListHidden.
func (c *hiddenItemsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Seen().ListHidden,
		func(size int32, token string) *skeinv1.ListHiddenRequest {
			return &skeinv1.ListHiddenRequest{UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
		[]string{"ITEM", "SINCE"},
		func(res *skeinv1.ListHiddenResponse) (rows [][]string) {
			for _, e := range res.GetEntries() {
				rows = append(rows, []string{e.GetItemId(), command.TimeText(e.GetHideTime())})
			}
			return rows
		})
}
