package archiver

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
)

// String tells people what was restored and what is missing.
func (r Restored) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The log %x continues in epoch %d after %s.\n", r.Log, r.Epoch, describeCursor(r.Head))
	fmt.Fprintf(&b, "The archive had it up to %s.\n", describeCursor(r.Archived))
	switch {
	case r.Salvaged != nil:
		s := r.Salvaged
		fmt.Fprintf(&b, "The damaged stream gave %s with %s.\n", describeCount(s.Envelopes, "envelope"), describeCount(s.Events, "event"))
		if len(s.Lost) > 0 {
			fmt.Fprintf(&b, "Lost: %s at %s.\n", describeCount(countSequences(s.Lost), "envelope"), describeSequences(s.Lost))
		} else {
			b.WriteString("It had no gaps.\n")
		}
	case r.Unreadable != nil:
		fmt.Fprintf(&b, "Nothing was taken from the damaged stream: %v.\n", r.Unreadable)
	default:
		b.WriteString("There was no stream to take more from.\n")
	}
	if r.Repeats != nil {
		b.WriteString(r.Repeats.String())
	}
	for _, store := range r.Stores {
		b.WriteString(store.String())
	}
	return b.String()
}

// String tells people what happens to the store.
func (o StoreOutcome) String() string {
	where := fmt.Sprintf("%s is at sequence %d", o.Name, o.Cursor.Seq)
	hasLost := len(o.LostSequences) > 0
	switch {
	case o.RebuildReason != nil && hasLost:
		return fmt.Sprintf("%s and must be built again: %v; it still has what the log lost at %s.\n",
			where, o.RebuildReason, describeSequences(o.LostSequences))
	case o.RebuildReason != nil:
		return fmt.Sprintf("%s and must be built again: %v.\n", where, o.RebuildReason)
	case hasLost:
		return fmt.Sprintf("%s and continues; it still has what the log lost at %s, until it is repaired or built again.\n",
			where, describeSequences(o.LostSequences))
	default:
		return where + " and continues.\n"
	}
}

// FormatRanges writes ranges of sequences for people, as in "3, 5-9".
func FormatRanges(list []eventlog.SeqRange) string {
	parts := make([]string, len(list))
	for i, r := range list {
		parts[i] = strconv.FormatUint(r.From, 10)
		if r.To > r.From {
			parts[i] += "-" + strconv.FormatUint(r.To, 10)
		}
	}
	return strings.Join(parts, ", ")
}

// describeSequences writes ranges of sequences, after the word for them.
func describeSequences(list []eventlog.SeqRange) string {
	if countSequences(list) == 1 {
		return "sequence " + FormatRanges(list)
	}
	return "sequences " + FormatRanges(list)
}

// countSequences returns how many sequences the ranges contain.
func countSequences(list []eventlog.SeqRange) (n uint64) {
	for _, r := range list {
		n += r.To - r.From + 1
	}
	return n
}

// describeCount writes a number of things, as in "2 events".
func describeCount(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// describeCursor writes a position for people.
func describeCursor(c events.Cursor) string {
	return fmt.Sprintf("sequence %d (%s)", c.Seq, c.LastTime.Time().UTC().Format(time.RFC3339))
}
