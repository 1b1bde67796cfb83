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

	AllowPartial bool          `help:"If lines are rejected, publish the others instead of ending at the first bad one. The exit code is still 1."`
	Visible      bool          `help:"Wait until every projection shows the events, not only until the log has them."`
	Batch        int           `help:"Send at most this many events in one call." default:"1000"`
	RetryFor     time.Duration `help:"How long to repeat a call whose outcome is not known." default:"30s"`
	JSON         bool          `help:"Print the result as JSON."`
}

// Help is shown below the flags.
func (*publishCmd) Help() string {
	return `Reads one event per line, as the JSON of skein.v1.Event:

  {"userFollowed":{"userId":"ann","targetUserId":"bob"}}
  {"boardCreated":{"board":{"ownerId":"bob","boardId":"bread"},"title":"Bread"}}

and prints a position that contains all of them. A query with this position as --at-least sees the events.

The command sends the lines that have arrived without waiting for more, up to --batch events in a call. The service accepts all events of a
call or none, unless --allow-partial is set. Live events without an event id get one, so that a call can be repeated
without publishing an event twice. With --visible the command says how many events the log already had.`
}

// publishRun is one run of skein publish.
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
	// Repeated is the number of accepted events that the log had already. Without --visible it
	// counts backfills only.
	Repeated int `json:"repeated_count,omitempty"`
}

// parsedLine is the event on a line, or the reason why the line is not an event.
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
	ctx, cancel := context.WithCancel(ctx) // ends readLines if sending fails
	defer cancel()

	// Lines are read while a call is under way, so that the next call can have all that have
	// arrived meanwhile.
	lines := make(chan parsedLine, c.Batch)
	readError := make(chan error, 1)
	go func() { readError <- p.readLines(ctx, lines) }()
	if err := p.sendAll(ctx, lines); err != nil {
		return p.reportFailure(err)
	}
	if err := <-readError; err != nil {
		return p.reportFailure(err)
	}

	if err := p.print(); err != nil || p.result.Refused == 0 {
		return err
	}
	return fmt.Errorf("%s rejected", command.Plural(uint64(p.result.Refused), "line was", "lines were"))
}

// readLines parses the lines of standard input and sends them to lines, which it closes at the end.
func (p *publishRun) readLines(ctx context.Context, lines chan<- parsedLine) error {
	defer close(lines)
	in := bufio.NewReaderSize(p.std.In, 64<<10)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // the byte order mark that some programs write
		}
		if len(bytes.TrimSpace(line)) > 0 {
			select {
			case lines <- p.parseLine(number, line):
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

// parseLine parses a line. A live event without an event id gets one, which is the same when the
// event is sent again.
func (p *publishRun) parseLine(number int, line []byte) parsedLine {
	parsed := parsedLine{number: number, event: &skeinv1.Event{}}
	if err := protojson.Unmarshal(line, parsed.event); err != nil {
		// The protobuf module varies the spaces in its errors on purpose, so that programs do not
		// depend on them.
		parsed.err = errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
	}
	if parsed.event.GetEventId() == "" && parsed.event.GetSource() == "" {
		parsed.event.EventId = fmt.Sprintf("%s-%d", p.run, number)
	}
	return parsed
}

const (
	// maxBatchBytes is the most bytes of events in a call: an envelope without its other fields.
	maxBatchBytes = events.MaxEnvelopeBytes - 1024
	// eventOverhead is the most bytes that an envelope adds to an event.
	eventOverhead = 8
)

// sendAll sends the lines that have arrived, in calls as large as allowed. It never waits for more
// lines to fill a call.
func (p *publishRun) sendAll(ctx context.Context, lines <-chan parsedLine) error {
	var deferred *parsedLine // a line that did not fit into the last batch
	for {
		var batch []parsedLine
		size := 0
		for len(batch) < p.Batch {
			line, ok := nextLine(lines, &deferred, len(batch) == 0)
			if !ok {
				break
			}
			if line.err != nil {
				if err := p.rejectLine(line.number, line.err.Error()); err != nil {
					return err
				}
				continue
			}
			eventSize := proto.Size(line.event) + eventOverhead
			if size+eventSize > maxBatchBytes && len(batch) > 0 {
				deferred = &line
				break
			}
			batch = append(batch, line)
			size += eventSize
		}

		if len(batch) == 0 {
			return nil
		}
		if err := p.sendBatch(ctx, batch); err != nil {
			return err
		}
	}
}

// nextLine returns the deferred line if there is one, else a line that has arrived, else, with
// wait, the next line to arrive. It returns false if there is none.
func nextLine(lines <-chan parsedLine, deferred **parsedLine, wait bool) (parsedLine, bool) {
	if *deferred != nil {
		line := **deferred
		*deferred = nil
		return line, true
	}
	if wait {
		line, ok := <-lines
		return line, ok
	}
	select {
	case line, ok := <-lines:
		return line, ok
	default:
		return parsedLine{}, false
	}
}

// rejectLine reports a line that is not published. Without --allow-partial it returns an error that
// ends the command.
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
	for _, line := range batch {
		req.Events = append(req.Events, line.event)
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

// publishWithRetries repeats a call until it is answered. To repeat a call is safe, because each
// event has an event id or is a backfill with an offset, by which the service recognizes an event
// that the log already has.
func (p *publishRun) publishWithRetries(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	deadline := time.Now().Add(p.RetryFor)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		res, err := command.Call(ctx, &p.ClientFlags, p.api.Events().Publish, req)
		if err == nil || ctx.Err() != nil || importer.IsFinal(err) || time.Now().Add(pause).After(deadline) {
			return res, err
		}
		p.std.Sayf("skein: retrying: %v", err)
		if wait.For(ctx, pause) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// reportFailure prints what was published before an error, and returns the error with the number of
// these events.
func (p *publishRun) reportFailure(err error) error {
	if p.result.Accepted > 0 {
		err = fmt.Errorf("%w\n%s published before", err, command.Plural(uint64(p.result.Accepted), "event was", "events were"))
	}
	return errors.Join(err, p.print())
}

func (p *publishRun) print() error {
	if p.JSON {
		return json.NewEncoder(p.std.Out).Encode(p.result)
	}
	if n := p.result.Repeated; n > 0 {
		p.std.Sayf("skein: the log already had %s, which changed nothing", command.Plural(uint64(n), "event", "events"))
	}
	if p.result.Position != "" {
		fmt.Fprintln(p.std.Out, p.result.Position)
	}
	return nil
}

// describeRejectedLines returns the error of a rejected call with the numbers of lines in place of
// the indexes of events.
func describeRejectedLines(err error, batch []parsedLine) error {
	var connectError *connect.Error
	if !errors.As(err, &connectError) {
		return err
	}

	var errs []error
	for _, detail := range connectError.Details() {
		value, detailErr := detail.Value()
		badRequest, ok := value.(*errdetails.BadRequest)
		if detailErr != nil || !ok {
			continue
		}
		for _, violation := range badRequest.GetFieldViolations() {
			// A field of an event is named events[3].user_followed.user_id.
			index, field, _ := strings.Cut(strings.TrimPrefix(violation.GetField(), "events["), "]")
			i, indexErr := strconv.Atoi(index)
			if indexErr != nil || i < 0 || i >= len(batch) {
				return err // the violation is not about an event
			}
			what := strings.TrimSpace(strings.TrimPrefix(field, ".") + " " + violation.GetDescription())
			errs = append(errs, fmt.Errorf("line %d: %s (%s)", batch[i].number, what, violation.GetReason()))
		}
	}
	if len(errs) == 0 {
		return err
	}
	return errors.Join(errs...)
}
