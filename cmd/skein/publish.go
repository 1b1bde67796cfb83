package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

type publishCmd struct {
	command.ClientFlags `embed:""`

	AllowPartial bool          `help:"Publish the good lines when others are refused, instead of ending at the first bad one; the exit code is 1 all the same."`
	Visible      bool          `help:"Wait until every projection shows the events, not only until the log has them."`
	Batch        int           `help:"Events in one call, at most." default:"1000"`
	RetryFor     time.Duration `help:"How long a call is tried again while its outcome is not known." default:"30s"`
	JSON         bool          `help:"Print the result as JSON."`
}

// Help is shown below the flags.
func (*publishCmd) Help() string {
	return `Reads one event a line, as the JSON of skein.v1.Event:

  {"userFollowed":{"userId":"ann","targetUserId":"bob"}}
  {"boardCreated":{"board":{"ownerId":"bob","boardId":"bread"},"title":"Bread"}}

and prints the position that contains them all; give it to a query as --at-least. Lines that have arrived are sent at once, up to
--batch events in a call; a call is taken whole or not at all. Live events without an event id get one, so that a call
with an unknown outcome can be tried again without taking an event twice. With --visible it says how many events were
repeats of what the log had.`
}

// publishing is one run of the command.
type publishRun struct {
	*publishCmd
	std *command.Streams
	api *command.Client
	// run makes the event ids of this run unique.
	run    string
	result publishResult
}

type publishResult struct {
	Position string `json:"position"`
	Accepted int    `json:"accepted_count"`
	Refused  int    `json:"refused_count"`
	// Repeated is the number of accepted events that the log had already. Without --visible it counts backfills only.
	Repeated int `json:"repeated_count,omitempty"`
}

// parsedLine is an event and its line number, or the error of a line that is no event.
type parsedLine struct {
	number int
	event  *skeinv1.Event
	err    error
}

// Run publishes standard input.
func (c *publishCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Batch < 1 || c.Batch > events.MaxEnvelopeEvents {
		return command.Usagef("--batch must be 1 to %d", events.MaxEnvelopeEvents)
	}
	p := &publishRun{publishCmd: c, std: std, api: c.Client(), run: rand.Text()[:10]}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan parsedLine, c.Batch)
	read := make(chan error, 1)
	go func() { read <- p.readLines(ctx, lines) }()
	if err := p.sendAll(ctx, lines); err != nil {
		return p.reportFailure(err)
	}
	if err := <-read; err != nil {
		return p.reportFailure(err)
	}
	if err := p.print(); err != nil || p.result.Refused == 0 {
		return err
	}
	return fmt.Errorf("%s refused", command.Plural(uint64(p.result.Refused), "line was", "lines were"))
}

func (p *publishRun) readLines(ctx context.Context, lines chan<- parsedLine) error {
	defer close(lines)
	in := bufio.NewReaderSize(p.std.In, 64<<10)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // the byte order mark that some programs write
		}
		if len(bytes.TrimSpace(line)) > 0 {
			l := parsedLine{number: number, event: &skeinv1.Event{}}
			if err := protojson.Unmarshal(line, l.event); err != nil {
				// The protobuf module varies the spaces in its errors on purpose, so that programs do not depend on them.
				l.err = errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
			}
			if l.event.GetEventId() == "" && l.event.GetSource() == "" {
				l.event.EventId = fmt.Sprintf("%s-%d", p.run, number)
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
}

// sendAll sends the lines that have arrived, in calls as large as allowed. It never waits for more lines to fill a call.
func (p *publishRun) sendAll(ctx context.Context, lines <-chan parsedLine) error {
	// The envelope adds a few bytes to each event.
	const maxBytes, perEvent = events.MaxEnvelopeBytes - 1024, 8
	var held *parsedLine
	for {
		var batch []parsedLine
		size := 0
		for len(batch) < p.Batch {
			l, open := nextLine(lines, &held, len(batch) == 0)
			if !open {
				break
			}
			if l.err != nil {
				if err := p.rejectLine(l.number, l.err.Error()); err != nil {
					return err // after the lines before it were sent
				}
				continue
			}
			n := proto.Size(l.event) + perEvent
			if size+n > maxBytes && len(batch) > 0 {
				held = &l
				break
			}
			batch, size = append(batch, l), size+n
		}
		if len(batch) == 0 {
			return nil
		}
		if err := p.sendBatch(ctx, batch); err != nil {
			return err
		}
	}
}

// nextLine returns the next line: the one held back, else one that has arrived, else, with wait, the next one to arrive.
func nextLine(lines <-chan parsedLine, held **parsedLine, wait bool) (parsedLine, bool) {
	if *held != nil {
		l := **held
		*held = nil
		return l, true
	}
	if wait {
		l, open := <-lines
		return l, open
	}
	select {
	case l, open := <-lines:
		return l, open
	default:
		return parsedLine{}, false
	}
}

// rejectLine reports a line that is not published. With --allow-partial the other lines are published.
func (p *publishRun) rejectLine(line int, why string) error {
	err := fmt.Errorf("line %d: %s", line, why)
	if !p.AllowPartial {
		return err
	}
	p.result.Refused++
	p.std.Sayf("skein: %s", events.EscapeControls(err.Error()))
	return nil
}

// sendBatch publishes one batch.
func (p *publishRun) sendBatch(ctx context.Context, batch []parsedLine) error {
	req := &skeinv1.PublishRequest{AllowPartial: p.AllowPartial}
	if p.Visible {
		req.Wait = skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE
	}
	for _, l := range batch {
		req.Events = append(req.Events, l.event)
	}
	res, err := p.publishWithRetries(ctx, req)
	if err != nil {
		return describeRejectedLines(err, batch)
	}
	p.result.Accepted += int(res.GetAcceptedCount())
	p.result.Repeated += len(res.GetRepeatedIndexes())
	if res.GetPosition() != "" {
		p.result.Position = res.GetPosition()
	}
	for _, r := range res.GetRejections() {
		if i := int(r.GetIndex()); i >= 0 && i < len(batch) {
			if err := p.rejectLine(batch[i].number, r.GetMessage()); err != nil {
				return err
			}
		}
	}
	return nil
}

// publishWithRetries repeats a call until it is answered. That is safe: each event has an event id or is a backfill with an offset, so the log
// takes it once.
func (p *publishRun) publishWithRetries(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	deadline := time.Now().Add(p.RetryFor)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		res, err := command.Call(ctx, &p.ClientFlags, p.api.Events().Publish, req)
		if err == nil || ctx.Err() != nil || importer.IsFinal(err) || time.Now().Add(pause).After(deadline) {
			return res, err
		}
		p.std.Sayf("skein: trying again: %v", err)
		if wait.For(ctx, pause) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// reportFailure reports how much was published before the error.
func (p *publishRun) reportFailure(err error) error {
	if p.result.Accepted > 0 {
		err = fmt.Errorf("%w\n%d events were published before", err, p.result.Accepted)
	}
	return errors.Join(err, p.print())
}

func (p *publishRun) print() error {
	if p.JSON {
		return json.NewEncoder(p.std.Out).Encode(p.result)
	}
	if n := p.result.Repeated; n > 0 {
		p.std.Sayf("skein: %s of what the log had, and nothing changes", command.Plural(uint64(n), "event is a repeat", "events are repeats"))
	}
	if p.result.Position != "" {
		fmt.Fprintln(p.std.Out, p.result.Position)
	}
	return nil
}

// describeRejectedLines replaces the indexes of events in the error of a refused call with the numbers of their lines.
func describeRejectedLines(err error, batch []parsedLine) error {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return err
	}
	var errs []error
	for _, detail := range refused.Details() {
		value, derr := detail.Value()
		bad, ok := value.(*errdetails.BadRequest)
		if derr != nil || !ok {
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			index, field, _ := strings.Cut(strings.TrimPrefix(v.GetField(), "events["), "]")
			i, perr := strconv.Atoi(index)
			if perr != nil || i < 0 || i >= len(batch) {
				return err
			}
			what := strings.TrimSpace(strings.TrimPrefix(field, ".") + " " + v.GetDescription())
			errs = append(errs, fmt.Errorf("line %d: %s (%s)", batch[i].number, what, v.GetReason()))
		}
	}
	if len(errs) == 0 {
		return err
	}
	return errors.Join(errs...)
}
