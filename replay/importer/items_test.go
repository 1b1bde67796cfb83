package importer

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
)

const pinColumns = "owner_id,pin_id,board_id,item_id,repin_owner_id,repin_pin_id,attributes,attributes_base64,time\n"

func TestItemsOfAFileAreInTheLog(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind Kind
		text string
		want []string
	}{
		{
			"pins with everything", Pins,
			pinColumns + "ann,p1,bread,i1,bob,p9,a b,,2024-01-01\nann,p1,,,,,,,2023-01-01\n",
			[]string{
				`1 pin_created ann/p1 on "bread" item i1 of bob/p9 "a b" 2024-01-01 00:00:00`,
				`2 pin_created ann/p1 on "" item p1 "" 2023-01-01 00:00:00`,
			},
		},
		{
			"pins in few columns have the start", Pins, "owner,pin\nann,p1\n",
			[]string{`1 pin_created ann/p1 on "" item p1 "" 2026-03-04 05:06:07`},
		},
		{
			"base64, with and without padding, of both alphabets", Pins,
			"owner,pin,attributes_base64\nann,p1,+/8=\nann,p2,+/8\nann,p3,-_8=\nann,p4,-_8\nann,p5,AAAA\nann,p6,\n",
			[]string{
				`1 pin_created ann/p1 on "" item p1 "\xfb\xff" 2026-03-04 05:06:07`,
				`2 pin_created ann/p2 on "" item p2 "\xfb\xff" 2026-03-04 05:06:07`,
				`3 pin_created ann/p3 on "" item p3 "\xfb\xff" 2026-03-04 05:06:07`,
				`4 pin_created ann/p4 on "" item p4 "\xfb\xff" 2026-03-04 05:06:07`,
				`5 pin_created ann/p5 on "" item p5 "\x00\x00\x00" 2026-03-04 05:06:07`,
				`6 pin_created ann/p6 on "" item p6 "" 2026-03-04 05:06:07`,
			},
		},
		{
			"plays, one item several times", Plays,
			"user_id,item_id,time\n" + strings.Repeat("ann,i1,2024-01-01\n", 2) + "bob,i1,2026-03-05\n",
			[]string{
				"1 played ann i1 2024-01-01 00:00:00", "2 played ann i1 2024-01-01 00:00:00",
				"3 played bob i1 2026-03-04 05:06:07", // a time within the next day is cut to the start
			},
		},
		{
			"unfollows", Unfollows, "follower,unfollowed,unfollowed_at\nann,bob,2024-01-01\n",
			[]string{`1 user_unfollowed ann bob "" 2024-01-01 00:00:00`},
		},
		{
			"unfollows of boards, also of the default board", BoardUnfollows, "subscriber,owner,channel\nann,bob,bread\nann,bob,\n",
			[]string{
				`1 board_unfollowed ann bobbread "" 2026-03-04 05:06:07`, `2 board_unfollowed ann bob "" 2026-03-04 05:06:07`,
			},
		},
		{
			"blocks", Blocks, "blocked_at,blocker,blocked_user_id\n2024-01-01,ann,bob\n",
			[]string{`1 user_blocked ann bob "" 2024-01-01 00:00:00`},
		},
		{
			"mutes", Mutes, "user_id,muted_id\nann,bob\n",
			[]string{`1 user_muted ann bob "" 2026-03-04 05:06:07`},
		},
		{
			"settings of follows", FollowSettings, "follower;user;notify;hide_repins\nann;bob;yes;0\nann;cid;;true\nann;dan;;\n",
			[]string{
				`1 follow_settings_set ann bob "" 2026-03-04 05:06:07 notify`,
				`2 follow_settings_set ann cid "" 2026-03-04 05:06:07 hide_repins`,
				`3 follow_settings_set ann dan "" 2026-03-04 05:06:07`,
			},
		},
		{
			"mutes with ends", Mutes, "user,muted,until,time\nann,bob,2030-01-01,2024-01-01\nann,cid,,2024-01-01\n",
			[]string{
				`1 user_muted ann bob "" 2024-01-01 00:00:00 until 2030-01-01 00:00:00`, `2 user_muted ann cid "" 2024-01-01 00:00:00`,
			},
		},
		{
			"hidden items", HiddenItems, "user,video,hidden_at\nann,i1,2024-01-01\n",
			[]string{"1 item_hidden ann i1 2024-01-01 00:00:00"},
		},
		{
			"likes without times", Reactions, "user_id,item_id\nann,i1\nbob,i2\n",
			[]string{"1 reacted ann i1 2026-03-04 05:06:07", "2 reacted bob i2 2026-03-04 05:06:07"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newFakeLog(t)
			o := options(t, l, tt.text)
			o.Kind = tt.kind
			report := mustRun(t, o)
			if diff := cmp.Diff(tt.want, l.described); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if report.Rejected != 0 || report.Events != uint64(len(tt.want)) {
				t.Errorf("got %+v, want %d events and no reject", report, len(tt.want))
			}

			// Import the file again, as after the state was lost.
			o.Restart = true
			mustRun(t, o)
			if diff := cmp.Diff(tt.want, l.described); diff != "" {
				t.Errorf("events after a second run (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamesThatPeopleTypeAreImported imports ids with joiners, tags and variation selectors, which
// arrive unchanged. The name of the file may have them, too.
func TestNamesThatPeopleTypeAreImported(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "follower,user\nعلی\u200cرضا,നന്\u200dമ\n👩\u200d👩\u200d👧,🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\n")
	o.Kind = Follows

	if report := mustRun(t, o); report.Rejected != 0 || report.Events != 2 {
		t.Errorf("got %+v, want 2 events and no reject", report)
	}

	got := map[string]string{}
	for _, ev := range l.appended {
		got[ev.User] = ev.Peer
	}
	want := map[string]string{
		"علی\u200cرضا":    "നന്\u200dമ",
		"👩\u200d👩\u200d👧": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("follows (-want +got):\n%s", diff)
	}

	source := SourceOf("/data/دنبال\u200cکننده\u200eها 1.csv", "0123456789abcdef")
	if want := "دنبال\u200cکننده_ها_1.csv-01234567"; source != want {
		t.Errorf("got the source %q, want %q", source, want)
	}
	if err := events.ValidateID(source); err != nil {
		t.Errorf("the source %q: got %v from ValidateID, want no error", source, err)
	}
}

// Every reason names the field and its limit, and the record after the bad one is imported.
func TestRejectNamesFieldAndLimit(t *testing.T) {
	long := strings.Repeat("x", 129)
	packed := base64.StdEncoding.EncodeToString(make([]byte, 257))
	for _, tt := range []struct {
		kind           Kind
		record, reason string
	}{
		{Pins, ",p,,,,,,,2001-01-01", "pin_created.pin.owner_id must be 1 to 128 bytes"},
		{
			Pins, "ann,,,,,,,,2001-01-01",
			"pin_created.pin.pin_id must be 1 to 128 bytes of UTF-8 without white space, control characters, " +
				"bidirectional controls and noncharacters and is empty",
		},
		{Pins, "ann,p q,,,,,,,2001-01-01", "pin_created.pin.pin_id must be 1 to 128 bytes"},
		{Pins, "ann,p," + long + ",,,,,,2001-01-01", "pin_created.board_id is too long: 129 bytes, at most 128"},
		{Pins, "ann,p,,i j,,,,,2001-01-01", "pin_created.item_id must be 1 to 128 bytes"},
		{Pins, "ann,p,,,bob,,,,2001-01-01", "pin_created.repin_of.pin_id must be 1 to 128 bytes"},
		{Pins, "ann,p,,,,q,,,2001-01-01", "pin_created.repin_of.owner_id must be 1 to 128 bytes"},
		{Pins, "ann,p,,,,," + strings.Repeat("é", 129) + ",,2001-01-01", "pin_created.attributes has 258 bytes: at most 256"},
		{Pins, "ann,p,,,,,," + packed + ",2001-01-01", "pin_created.attributes has 257 bytes: at most 256"},
		{Pins, "ann,p,,,,,,?,2001-01-01", "attributes_base64 must be base64 of at most 256 bytes"},
		{Pins, "ann,p,,,,,,YQ=,2001-01-01", "attributes_base64 must be base64 of at most 256 bytes"},
		{Pins, "ann,p,,,,,a,YQ==,2001-01-01", "attributes must be empty where attributes_base64 is given"},
		{Pins, "ann,p,,,,,,,soon", `the time "soon" is no time`},
		{Plays, ",i,2001-01-01", "played.user_id must be 1 to 128 bytes"},
		{Plays, "ann,,2001-01-01", "played.item_id must be 1 to 128 bytes"},
		{Plays, "ann," + long + ",2001-01-01", "played.item_id is too long: 129 bytes, at most 128"},
		{Plays, "ann,i,", "is no time"},
		{Plays, "ann,i", "it has 2 fields, not 3 as the first row"},
		{Unfollows, "ann,ann,2001-01-01", "user_unfollowed.target_user_id must not be the acting user"},
		{Unfollows, ",bob,2001-01-01", "user_unfollowed.user_id must be 1 to 128 bytes"},
		{BoardUnfollows, "ann,ann,b,2001-01-01", "board_unfollowed.board.owner_id must not be the acting user"},
		{BoardUnfollows, "ann,bob,b c,2001-01-01", "board_unfollowed.board.board_id must be 1 to 128 bytes"},
		{Blocks, "ann,ann,2001-01-01", "user_blocked.target_user_id must not be the acting user"},
		{Mutes, "ann,b c,2001-01-01", "user_muted.target_user_id must be 1 to 128 bytes"},
		{FollowSettings, "ann,ann,1,2001-01-01", "follow_settings_set.target_user_id must not be the acting user"},
		{FollowSettings, "ann,bob,maybe,2001-01-01", `notify must be true, false or empty, not "maybe"`},
		{Reactions, "a b,i,2001-01-01", "reacted.user_id must be 1 to 128 bytes"},
		{Reactions, "ann," + long + ",2001-01-01", "reacted.item_id is too long: 129 bytes, at most 128"},
	} {
		t.Run(fmt.Sprintf("%s %.20s", tt.kind, tt.record), func(t *testing.T) {
			// Put the record between two good ones.
			header := "user,item,time\n"
			good := "good,i,2001-01-01\n"
			switch tt.kind {
			case Pins:
				header = pinColumns
				good = "good,p,,,,,,,2001-01-01\n"
			case Unfollows:
				header = "follower,user,time\n"
			case BoardUnfollows:
				header = "follower,owner,board,time\n"
				good = "good,o,b,2001-01-01\n"
			case Blocks:
				header = "user,blocked,time\n"
			case Mutes:
				header = "user,muted,time\n"
			case FollowSettings:
				header = "follower,user,notify,time\n"
				good = "good,o,1,2001-01-01\n"
			}
			l := newFakeLog(t)
			o := options(t, l, header+good+tt.record+"\n"+good)
			o.Kind, o.MaxRejects = tt.kind, mustAllow(t, "1")

			report := mustRun(t, o)
			if report.Rejected != 1 || report.Events != 2 {
				t.Fatalf("got %+v, want 2 events and 1 reject", report)
			}
			rejects, err := os.ReadFile(report.Rejects)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(rejects), "\n")
			parts := strings.SplitN(lines[1], "\t", 3)
			if len(parts) != 3 || parts[0] != "2" || !strings.Contains(parts[1], tt.reason) || parts[2] != tt.record {
				t.Errorf("got the reject %q, want record 2, a reason with %q and the line %q", parts, tt.reason, tt.record)
			}
		})
	}
}

// With --first, each fact is imported once, whatever else the records say.
func TestFirstImportsEachFactOnce(t *testing.T) {
	for kind, text := range map[Kind]string{
		Pins:      "owner,pin,board\nann,p,b\nann,p,c\nann,q,b\nbob,p,b\n",
		Plays:     "ann,i,2024-01-01\nann,i,2024-01-02\nann,j,2024-01-01\nbob,i,2024-01-01\n",
		Reactions: "ann 7\nann 7\nann 8\nbob 7\n",

		Unfollows:      "follower,user\nann,bob\nann,cid\nann,bob\nbob,cid\n",
		BoardUnfollows: "follower,owner,board\nann,bob,b\nann,bob,\nann,bob,b\nann,cid,b\n",
		Blocks:         "user,blocked\nann,bob\nann,cid\nann,bob\nbob,cid\n",
		Mutes:          "user,muted\nann,bob\nann,cid\nann,bob\nbob,cid\n",
		FollowSettings: "follower,user\nann,bob\nann,cid\nann,bob\nbob,cid\n",
		HiddenItems:    "user,item\nann,i\nann,j\nann,i\nbob,j\n",
	} {
		l := newFakeLog(t)
		o := options(t, l, text)
		o.Kind, o.First = kind, true
		if report := mustRun(t, o); report.Skipped != 1 || len(l.described) != 3 {
			t.Errorf("%s: got %+v and the events %v, want 1 skipped record and 3 events", kind, report, l.described)
		}
	}
}

// 1000 of the largest pins are too large for one call. The calls have fewer events then, and every
// record arrives in order. fakeLog rejects a call that is too large.
func TestCallsOfLargestPinsFit(t *testing.T) {
	l := newFakeLog(t)
	long := strings.Repeat("x", 124)
	attributes := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", events.MaxAttributesBytes)))

	var b strings.Builder
	b.WriteString("owner,pin,board,item,repin_owner,repin_pin,attributes_base64,time\n")
	for i := range 2500 {
		fmt.Fprintf(&b, "%04d%[2]s,%04[1]d%[2]s,%04[1]d%[2]s,%04[1]d%[2]s,abcd%[2]s,efgh%[2]s,%[3]s,2026-01-01 00:00:00.123456\n",
			i, long, attributes)
	}
	o := options(t, l, b.String())
	o.Kind, o.Source = Pins, strings.Repeat("s", events.MaxSourceBytes)

	report := mustRun(t, o)
	if len(l.described) != 2500 || report.Rejected != 0 {
		t.Errorf("got %d events in the log and %+v, want 2500 events and no reject", len(l.described), report)
	}
	const wantCalls = 1 + 4 // the first call only tries the source
	if l.calls != wantCalls {
		t.Errorf("got %d calls, want %d", l.calls, wantCalls)
	}
}

// The same file imported as plays and as likes is two imports. Neither makes the log ignore the
// records of the other.
func TestOneFileAsTwoKindsIsTwoImports(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "user,item\nann,i\n")
	o.Kind = Plays
	played := mustRun(t, o)
	o.Kind, o.State = Reactions, o.Path+".likes.json"
	liked := mustRun(t, o)

	if len(l.described) != 2 {
		t.Errorf("got the events %v, want a play and a like", l.described)
	}
	if played.Source == liked.Source {
		t.Errorf("got the source %s for both kinds, want two sources", played.Source)
	}
}

// An import of any kind that was interrupted continues after the last acknowledged record.
func TestInterruptedImportOfAnyKindContinues(t *testing.T) {
	for _, kind := range []Kind{Pins, Plays, Reactions} {
		t.Run(string(kind), func(t *testing.T) {
			l := newFakeLog(t)
			o := options(t, l, strings.ReplaceAll(followLines(2500), "u1499,", "bad id,"))
			o.Kind = kind
			o.MaxRejects = mustAllow(t, "1")
			o.Format.Columns = []string{"user", "item"}
			if kind == Pins {
				o.Format.Columns = []string{"owner", "pin"}
			}

			// Only the first call of the first run is accepted.
			l.fail = func(call int) (before, after error) {
				if call == 2 {
					return connect.NewError(connect.CodePermissionDenied, errors.New("not now")), nil
				}
				return nil, nil
			}
			if _, err := Run(t.Context(), o); err == nil || len(l.described) != 1000 {
				t.Fatalf("the first run: got %v and %d events in the log, want an error after 1000 events", err, len(l.described))
			}

			// The second run begins an hour later.
			o.Now = func() time.Time { return start.Add(time.Hour) }
			report := mustRun(t, o)
			if report.Sent != 1499 || report.Events != 2499 || report.Rejected != 1 {
				t.Errorf("the second run: got %+v, want 2499 events, 1499 of them sent by this run, and 1 reject", report)
			}
			if len(l.described) != 2499 {
				t.Fatalf("the second run: got %d events in the log, want 2499", len(l.described))
			}

			// The times of its events are those of the first start.
			const wantOffset, wantTime = "2500 ", " 2026-03-04 05:06:07"
			if last := l.described[2498]; !strings.HasPrefix(last, wantOffset) || !strings.HasSuffix(last, wantTime) {
				t.Errorf("got the last event %q, want one that begins with %q and ends with %q", last, wantOffset, wantTime)
			}
		})
	}
}
