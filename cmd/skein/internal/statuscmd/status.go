package statuscmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Cmd is the command `skein status`.
type Cmd struct {
	command.ClientFlags `embed:""`

	Rejected int32 `help:"Number of refused events to show." default:"5"`
	JSON     bool  `help:"Print the answer of the service as JSON."`

	Watch bool          `help:"Show continuously what the service is doing, until a signal."`
	Every time.Duration `help:"With --watch: time between two updates." default:"1s"`
	Count int           `help:"With --watch: stop after this many updates; 0 means never." default:"0"`
}

// Run calls GetStatus and prints the answer. It returns an error, for scripts, if the log does not
// answer, or a projection has failed or waits before a hole of the log. With --watch, Run shows
// what the service is doing instead.
func (c *Cmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Watch {
		return c.watch(ctx, std)
	}

	// A page size of 0 would mean the default of the service.
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: max(c.Rejected, 1)})
	if err != nil {
		return err
	}

	if c.JSON {
		err = command.PrintJSON(std.Out, res)
	} else {
		err = std.PrintAtOnce(func(std *command.Streams) error { return c.print(std, res) })
	}
	if err != nil {
		return err
	}
	return healthError(res)
}

// print prints the answer of GetStatus for people.
func (c *Cmd) print(std *command.Streams, res *skeinv1.GetStatusResponse) error {
	printLog(std, res)
	printMaintenance(std, res)
	if err := printProjections(std, res); err != nil {
		return err
	}
	if cluster := res.GetCluster(); cluster != nil {
		fmt.Fprintln(std.Out)
		if err := command.PrintCluster(std.Out, cluster); err != nil {
			return err
		}
	}

	for _, op := range res.GetOperations() {
		fmt.Fprintf(std.Out, "%s: %s\n", command.OperationName(op), command.OperationProgressText(op))
	}
	if f := res.GetFeeds(); f.GetInboxPages()+f.GetMergedPages() > 0 {
		fmt.Fprintf(std.Out, "\nfeed pages: %d from inboxes alone, %d merged with %d outboxes\n",
			f.GetInboxPages(), f.GetMergedPages(), f.GetOutboxesOpened())
	}

	fmt.Fprintf(std.Out, "\nrefused events: %d\n", res.GetRejectedEventCount())
	for i, r := range res.GetRejectedEvents() {
		if i >= int(c.Rejected) {
			break
		}
		where := fmt.Sprintf("envelope %d", r.GetSequence())
		if r.GetSlot() >= 0 { // a negative slot means that the whole envelope was refused
			where += fmt.Sprintf(", event %d", r.GetSlot())
		}
		fmt.Fprintf(std.Out, "  %s: %s\n", where, r.GetMessage())
	}
	return nil
}

// healthError returns [command.ErrSilent] if the log does not answer, or a projection has failed or
// waits before a hole of the log. The printed answer says what is wrong.
func healthError(res *skeinv1.GetStatusResponse) error {
	if res.GetLog().GetError() != "" || slices.ContainsFunc(res.GetProjections(), command.IsStuck) {
		return command.ErrSilent
	}
	return nil
}

// printLog prints the state of the log.
func printLog(std *command.Streams, res *skeinv1.GetStatusResponse) {
	l := res.GetLog()
	fmt.Fprintf(std.Out, "log %s, epoch %d\n", l.GetLogId(), l.GetEpoch())
	if l.GetError() != "" {
		fmt.Fprintf(std.Out, "  does not answer: %s\n  the last envelope that is known is %d\nposition %s\n",
			l.GetError(), l.GetLastSequence(), res.GetPosition())
		return
	}

	limit := "no limit"
	if l.GetMaxBytes() > 0 {
		limit = "of " + events.FormatSize(l.GetMaxBytes())
	}
	envelopes := "no envelopes"
	if l.GetFirstSequence() > 0 {
		envelopes = fmt.Sprintf("envelopes %d to %d", l.GetFirstSequence(), l.GetLastSequence())
	}
	fmt.Fprintf(std.Out, "  %s, %s %s\n", envelopes, events.FormatSize(l.GetBytes()), limit)
	if l.DaysUntilFull != nil {
		fmt.Fprintf(std.Out, "  full in %.1f days if it grows as in the last hours\n", l.GetDaysUntilFull())
	}
	for _, h := range l.GetAcceptedHoles() {
		fmt.Fprintf(std.Out, "  lost, and accepted as lost: %s\n", command.HoleText(h))
	}
	for _, h := range l.GetHoles() {
		fmt.Fprintf(std.Out, "  HAS A HOLE: %s, and no projection folds beyond it; docs/runbook.md, SkeinLogHole\n", command.HoleText(h))
	}
	fmt.Fprintf(std.Out, "position %s\n", res.GetPosition())
}

// printMaintenance prints the state of the archive, the snapshots and the auditor.
func printMaintenance(std *command.Streams, res *skeinv1.GetStatusResponse) {
	if a := res.GetArchive(); a != nil {
		fmt.Fprintf(std.Out, "archive %s\n  up to envelope %d, %s in %d files, %s", a.GetLocation(), a.GetLastSequence(),
			events.FormatSize(a.GetBytes()), a.GetSegments(), command.Plural(a.GetWaitingEnvelopes(), "envelope waits", "envelopes wait"))
		if a.DaysUntilFull != nil {
			fmt.Fprintf(std.Out, ", disk full in %.0f days", a.GetDaysUntilFull())
		}
		if !a.GetArchiving() {
			fmt.Fprint(std.Out, "; not written by this process")
		}
		if a.GetError() != "" {
			fmt.Fprintf(std.Out, "\n  does not continue: %s", a.GetError())
		}
		fmt.Fprintln(std.Out)
	}

	if s := res.GetSnapshots(); s != nil {
		fmt.Fprintf(std.Out, "snapshots %s\n  %d taken, %d failed, the last at %s, %s\n", s.GetLocation(), s.GetTaken(), s.GetFailed(),
			command.TimeText(s.GetLastTime()), events.FormatSize(s.GetLastBytes()))
		if s.GetError() != "" {
			fmt.Fprintf(std.Out, "  the last failed: %s\n", s.GetError())
		}
	}

	if a := res.GetAudit(); a != nil {
		fmt.Fprintf(std.Out, "audit\n  %d checks, %d wait, round %d at partition %d of 256; %d findings, %d rows repaired\n", a.GetChecks(),
			a.GetQueued(), a.GetRounds()+1, a.GetPartition(), a.GetFindings(), a.GetRepairedRows())
		if a.GetUnexplained() > 0 {
			fmt.Fprintf(std.Out, "  %d findings that a repair did not change, so a fold must be wrong\n", a.GetUnexplained())
		}
		if a.GetLastFinding() != "" {
			fmt.Fprintf(std.Out, "  the last finding: %s\n", a.GetLastFinding())
		}
	}
	fmt.Fprintln(std.Out)
}

// formatText returns the format of a store's files and, if there is a newer one, the format to
// which `skein finalize-upgrade` would move them.
func formatText(p *skeinv1.ProjectionStatus) string {
	text := strconv.FormatUint(uint64(p.GetStoreFormat()), 10)
	if p.GetStoreFormat() < p.GetNewestStoreFormat() {
		text += fmt.Sprintf(" (of %d)", p.GetNewestStoreFormat())
	}
	return text
}

// printProjections prints a table of the projections, and then their errors.
func printProjections(std *command.Streams, res *skeinv1.GetStatusResponse) error {
	t := command.NewTable(std.Out, "PROJECTION", "STATE", "ENVELOPES BEHIND", "LAG", "DISK", "VERSION", "GENERATION", "FORMAT", "VERIFIED")
	for _, p := range res.GetProjections() {
		t.Row(
			p.GetName(),
			command.ProjectionStateText(p.GetState()),
			strconv.FormatUint(p.GetLagEnvelopes(), 10),
			command.SecondsText(p.GetLagSeconds()),
			events.FormatSize(p.GetDiskBytes()),
			strconv.FormatUint(uint64(p.GetVersion()), 10),
			strconv.FormatUint(uint64(p.GetGeneration()), 10),
			formatText(p),
			command.TimeText(p.GetLastVerifyTime()),
		)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range res.GetProjections() {
		if p.GetError() != "" {
			fmt.Fprintf(std.Out, "%s is %s: %s\n", p.GetName(), command.ProjectionStateText(p.GetState()), p.GetError())
		}
	}
	return nil
}
