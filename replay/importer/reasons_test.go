package importer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Records with the same fault have the same reason, whatever their values are, over all runs of an
// import.
func TestSameFaultHasTheSameReason(t *testing.T) {
	l := newFakeLog(t)
	var b strings.Builder
	b.WriteString("follower,user,time\nann,refused,2024-01-01\n")
	for i := range 2500 {
		fmt.Fprintf(&b, "u%d,v%d,2024-01-01\n", i, i)
	}
	b.WriteString("ann,ann,2024-01-01\nann,bob,soon\nann,bob,\"some \"\"day\"\"\"\nbob,bob,2024-01-01\n" +
		"refused,bob,2024-01-01\nann\nrefused,cid,2024-01-01\n")

	// The first run is interrupted after two calls.
	o := options(t, l, b.String())
	ctx, cancel := context.WithCancel(t.Context())
	o.Publish = func(c context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
		if l.calls == 2 {
			cancel()
			return nil, ctx.Err()
		}
		return l.publish(c, req)
	}

	if _, err := Run(ctx, o); err == nil {
		t.Fatal("the first run: got no error, want that it is interrupted")
	}

	o.Publish = l.publish
	o.MaxRejects = mustAllow(t, "5")
	report := mustRun(t, o)
	want := ReasonCounts{
		{"user_followed.target_user_id must not be the acting user: nobody follows, blocks or mutes themselves", 2, 2502, "ann,ann,2024-01-01"},
		{"the time … is no time: unix seconds, milliseconds or microseconds, or 2006-01-02 15:04:05, or RFC 3339", 2, 2503, "ann,bob,soon"},
		{"it has 1 fields, not 3 as the first row", 1, 2507, "ann"},
		{"not here", 2, 2506, "refused,bob,2024-01-01"},
	}
	if diff := cmp.Diff(want, report.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}

	// Another run counts all rejects again, not in addition.
	if diff := cmp.Diff(want, mustRun(t, o).Reasons); diff != "" {
		t.Errorf("reasons of a second run (-want +got):\n%s", diff)
	}
}

// The number of reasons is limited, and every reject is counted in one.
func TestReasonsAreBoundedAndCountAllRejects(t *testing.T) {
	var counts ReasonCounts
	for i := range 1000 {
		counts.Add(fmt.Sprintf("fault %d of \"%d\"", i, i), uint64(i+1), strings.Repeat("é", 1000))
	}

	total := uint64(0)
	for _, r := range counts {
		total += r.Count
		if len(r.FirstExcerpt) > excerptBytes+len("…") || !strings.HasSuffix(r.FirstExcerpt, "é…") {
			t.Errorf("got the excerpt %q, want at most %d bytes with the mark of a cut after a whole character", r.FirstExcerpt, excerptBytes)
		}
	}
	if total != 1000 {
		t.Errorf("the reasons count %d rejects, want 1000", total)
	}

	if len(counts) != maxReasons+1 {
		t.Errorf("got %d reasons, want %d", len(counts), maxReasons+1)
	}
	last := counts[len(counts)-1]
	if last.Reason != otherReasons || last.FirstRecord != maxReasons+1 {
		t.Errorf("got the last reason %+v, want %q from record %d on", last, otherReasons, maxReasons+1)
	}
}

// An input cannot send control characters to the terminal, and an excerpt ends with a whole
// character.
func TestReasonsAreSafeToPrint(t *testing.T) {
	var counts ReasonCounts
	counts.Add("bad \x1b in \"a\"", 3, "\x1b[2J\xff")
	counts.Add("bad \x1b in \"b\"", 2, "x"+strings.Repeat("é", excerptBytes))

	want := ReasonCounts{{`bad \x1b in …`, 2, 2, "x" + strings.Repeat("é", excerptBytes/2-1) + "…"}}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}

	counts = nil
	counts.Add("bad", 0, "\x1b[2J\xff")
	if got, want := counts[0].String(), "1 rejected: bad; first: \\x1b[2J\ufffd"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMaxRejectsLimitsNumberOrPercentage(t *testing.T) {
	for _, tt := range []struct {
		limit                       string
		rejected, accepted, records uint64
		wantError                   string
	}{
		{"0", 0, 5, 5, ""},
		{"0", 1, 4, 5, "1 of 5 records were rejected, and --max-rejects allows only 0"},
		{"3", 3, 1, 4, ""},
		{"3", 4, 1, 5, "allows only 3"},
		{"0%", 0, 5, 5, ""},
		{"0%", 1, 4, 5, "allows only 0"},
		{"0.5%", 5, 995, 1000, ""},
		{"0.5%", 6, 994, 1000, "6 of 1000 records were rejected, and --max-rejects allows only 5"},
		{".5%", 5, 995, 1000, ""},
		{"0.50%", 5, 995, 1000, ""},
		{"0", 999, 1, 1000, "999 of 1000 records were rejected, and --max-rejects allows only 0"},
		{"100%", 5, 0, 5, "no record was accepted"},
		{"100%", 4, 1, 5, ""},
		{"0", 0, 0, 0, "no record was accepted"},
		// These percentages are allowed exactly. As a binary fraction each of them is a little too
		// small.
		{"0.57%", 57, 9943, 10_000, ""},
		{"0.57%", 58, 9942, 10_000, "58 of 10000 records were rejected, and --max-rejects allows only 57"},
		{"0.29%", 29, 9971, 10_000, ""},
		{"1.1%", 11, 989, 1000, ""},
		{"0.0000000000000000001%", 1, 999_999, 1_000_000, "allows only 0"},
	} {
		t.Run(fmt.Sprintf("%s of %d/%d", tt.limit, tt.rejected, tt.records), func(t *testing.T) {
			var m MaxRejects
			if err := m.UnmarshalText([]byte(tt.limit)); err != nil {
				t.Fatal(err)
			}

			err := m.Check(tt.rejected, tt.records, tt.accepted > 0)
			switch {
			case tt.wantError == "" && err != nil:
				t.Errorf("got the error %v, want none", err)
			case tt.wantError != "" && (err == nil || !strings.Contains(err.Error(), tt.wantError)):
				t.Errorf("got the error %v, want one with %q", err, tt.wantError)
			}
		})
	}
}

func TestMaxRejectsRefusesOtherForms(t *testing.T) {
	for _, text := range []string{
		"", "%", ".%", "-1", "101%", "100.01%", "-1%", "+1%", "NaN%", "0.5", "x", "1/2%", "18446744073709551616",
		"1e1%", "1e999999999%", "0x1%", "1_0%",
	} {
		t.Run(text, func(t *testing.T) {
			var m MaxRejects
			if err := m.UnmarshalText([]byte(text)); err == nil {
				t.Errorf("%q: got no error, want one", text)
			}
			if m != (MaxRejects{}) {
				t.Errorf("%q: got the limit %+v after the error, want that it is unchanged", text, m)
			}
		})
	}
}

// Before anything is published, a notice describes the first record: which column is which, its
// time, and what may not be a time.
func TestNoticeDescribesTheFirstRecord(t *testing.T) {
	for _, tt := range []struct {
		kind Kind
		text string
		want string
	}{
		{Follows, "user,follower\nann,bob\n", "first row: bob follows ann, 2026-03-04T05:06:07Z, the start of the import"},
		{Follows, "1 2 1254192988\n", "first row: 1 follows 2, 2009-09-29T02:56:28Z"},
		{
			Follows, "user,follower\nann,ann\nann,bob\n",
			"first row: cannot be taken: user_followed.target_user_id must not be the acting user",
		},
		{
			Boards, "owner,board,title,follower,time\nann,b,Bread,bob,2024-01-01\n",
			`first row: ann has board "b" titled "Bread", which bob follows, 2024-01-01T00:00:00Z`,
		},
		{
			Pins, "owner,pin,board,time\nann,p,b,2024-01-01\n",
			`first row: ann made pin p on board "b", which shows item p, 2024-01-01T00:00:00Z`,
		},
		{
			Plays, "user,item,time\nann,i,1.5\nbob,i,2000-01-01\n",
			`first row: cannot be taken: the time "1.5" would be "1970-01-01T00:00:01.5Z", which is before 1990`,
		},
		{Plays, "user,item,time\nann,i,2009-09-29\nbob,i,2001-01-01\n", "times from 2001-01-01T00:00:00Z to 2009-09-29T00:00:00Z"},
		{Plays, "# one\n# two\n1 2\n", "skipping 2 lines before the first row that begin with #"},
		{Reactions, "item,user\ni,ann\n", "first row: ann reacts to i with like, "},
	} {
		t.Run(tt.want, func(t *testing.T) {
			l := newFakeLog(t)
			o := options(t, l, tt.text)
			o.Kind, o.MaxRejects = tt.kind, mustAllow(t, "1")
			var notices []string
			o.Notice = func(text string) {
				notices = append(notices, text)
				if l.calls > 0 {
					t.Errorf("got the notice %q after %d calls of Publish, want it before the first", text, l.calls)
				}
			}

			mustRun(t, o)
			text := strings.Join(notices, "\n")
			if !strings.Contains(text, tt.want) {
				t.Errorf("%s: got the notices\n%s\nwant %q in them", tt.text, text, tt.want)
			}
		})
	}
}
