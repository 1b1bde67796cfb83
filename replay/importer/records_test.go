package importer

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
)

// readRecords reads a file with this text. It returns the shape of the file and the fields of its
// records.
func readRecords(t *testing.T, kind Kind, f Format, text string) (*shape, []record, error) {
	o := Options{Kind: kind, Format: f, MaxRejects: mustAllow(t, "100%")}
	o.SetDefaults()
	in, err := newInspection(o, microsOf(start))
	if err != nil {
		return nil, nil, err
	}
	in.open = func() (*file, error) { return newFile(io.NopCloser(strings.NewReader(text)), int64(len(text))) }

	s, err := in.findShape(t.Context())
	if err != nil {
		return nil, nil, err
	}
	content, err := in.open()
	if err != nil {
		return nil, nil, err
	}
	reader, err := newRecordReader(content, s)
	if err != nil {
		return nil, nil, err
	}

	var records []record
	for {
		r, err := reader.nextRecord()
		if errors.Is(err, io.EOF) {
			return s, records, nil
		}
		if err != nil {
			return nil, nil, err
		}
		records = append(records, r)
	}
}

// describeRecords describes each record by its fields that are not empty, in the order of roles, or
// by its error.
func describeRecords(records []record) []string {
	var descriptions []string
	for _, r := range records {
		if r.err != nil {
			descriptions = append(descriptions, "error: "+r.err.Error())
			continue
		}

		var fields []string
		for _, f := range r.fields {
			if f != "" {
				fields = append(fields, f)
			}
		}
		descriptions = append(descriptions, strings.Join(fields, " "))
	}
	return descriptions
}

func TestRecordsOfEveryShapeAreRead(t *testing.T) {
	tests := []struct {
		name  string
		kind  Kind // empty means follows
		f     Format
		text  string
		shape string   // the description of the shape
		want  []string // the descriptions of the records
	}{
		{
			name: "tabs, names in the last comment, CRLF, blank lines, no newline at the end",
			text: "# A graph\r\n# Nodes: 3\r\n# FromNodeId\tToNodeId\r\n1\t2\r\n\r\n2\t3",
			want: []string{"1 2", "2 3"},
			shape: "follower from column 1 (FromNodeId), user from column 2 (ToNodeId), " +
				"delimiter tab",
		},
		{
			name:  "commas and a header in another order",
			text:  "list_created_at,follower,followee\n1671916715,7,50\n1671916715,7,61\n",
			want:  []string{"7 50 1671916715", "7 61 1671916715"},
			shape: "follower from column 2 (follower), user from column 3 (followee), time from column 1 (list_created_at), delimiter comma",
		},
		{
			name:  "spaces, no names, times",
			text:  "1 4 1254192988\n3  4\t1254194656\n",
			want:  []string{"1 4 1254192988", "3 4 1254194656"},
			shape: "follower from column 1, user from column 2, time from column 3, delimiter space",
		},
		{
			name:  "semicolons, byte order mark",
			text:  "\ufefffrom;to\nann;bob\n",
			want:  []string{"ann bob"},
			shape: "follower from column 1 (from), user from column 2 (to), delimiter semicolon",
		},
		{
			name:  "mapping by position on a file without names",
			f:     Format{Columns: []string{"user", "-", "follower"}},
			text:  "bob,9,ann\ncid,9,ann\n",
			want:  []string{"ann bob", "ann cid"},
			shape: "follower from column 3, user from column 1, delimiter comma",
		},
		{
			name:  "mapping by name",
			f:     Format{Columns: []string{"follower=who", "user=whom"}},
			text:  "whom,who\nbob,ann\n",
			want:  []string{"ann bob"},
			shape: "follower from column 2 (who), user from column 1 (whom), delimiter comma",
		},
		{
			name:  "mapping by number, header found by its time",
			f:     Format{Columns: []string{"follower=2", "user=1", "time=3"}},
			text:  "a,b,c\nbob,ann,2009-09-29 02:56:28\n",
			want:  []string{"ann bob 2009-09-29 02:56:28"},
			shape: "follower from column 2 (b), user from column 1 (a), time from column 3 (c), delimiter comma",
		},
		{
			name:  "a header that only a person can tell",
			f:     Format{Columns: []string{"follower", "user"}, Header: HeaderYes},
			text:  "x,y\nann,bob\n",
			want:  []string{"ann bob"},
			shape: "follower from column 1 (x), user from column 2 (y), delimiter comma",
		},
		{
			name:  "users with the names of columns",
			f:     Format{Header: HeaderNo},
			text:  "from,to\nann,bob\n",
			want:  []string{"from to", "ann bob"},
			shape: "follower from column 1, user from column 2, delimiter comma",
		},
		{
			name:  "a first row of users with numbers",
			text:  "u0,v0\nu1,v1\n",
			want:  []string{"u0 v0", "u1 v1"},
			shape: "follower from column 1, user from column 2, delimiter comma",
		},
		{
			name:  "braces are no JSON",
			text:  "{7},{8}\n[9],[10]\n",
			want:  []string{"{7} {8}", "[9] [10]"},
			shape: "follower from column 1, user from column 2, delimiter comma",
		},
		{
			name: "rows that do not fit",
			text: "follower,user\nann\nann,bob,cid\n,bob\nann,bob\n",
			want: []string{
				"error: it has 1 fields, not 2 as the first row", "error: it has 3 fields, not 2 as the first row", "bob",
				"ann bob",
			},
			shape: "follower from column 1 (follower), user from column 2 (user), delimiter comma",
		},
		{
			name: "quotes",
			kind: Boards,
			text: "owner,board,title\nann,b1,\"Bread, cakes\"\nann,b2,\"the \"\"best\"\"\"\nann, b3 , 5\" nails \n",
			want: []string{
				"ann b1 Bread, cakes", `ann b2 the "best"`, `ann b3 5" nails`,
			},
			shape: "owner from column 1 (owner), board from column 2 (board), title from column 3 (title), delimiter comma",
		},
		{
			name: "pins with all columns",
			kind: Pins,
			text: "owner_id,pin_id,board_id,item_id,repin_owner_id,repin_pin_id,attributes,attributes_base64,time\n" +
				"ann,p1,bread,i1,bob,p9,a b,,2024-01-01\nann,p2,,,,,,YQ==,2024-01-02\n",
			want: []string{"ann p1 bread i1 bob p9 a b 2024-01-01", "ann p2 YQ== 2024-01-02"},
			shape: "owner from column 1 (owner_id), pin from column 2 (pin_id), board from column 3 (board_id), " +
				"item from column 4 (item_id), repin_owner from column 5 (repin_owner_id), repin_pin from column 6 (repin_pin_id), " +
				"attributes from column 7 (attributes), attributes_base64 from column 8 (attributes_base64), " +
				"time from column 9 (time), delimiter comma",
		},
		{
			name: "pins by other names",
			kind: Pins,
			text: "published_at\tVideo ID\tauthor\tpost_id\tchannel\n2024-01-01\tv\tann\tp\tbread\n",
			want: []string{"ann p bread v 2024-01-01"},
			shape: "owner from column 3 (author), pin from column 4 (post_id), board from column 5 (channel), " +
				"item from column 2 (Video ID), time from column 1 (published_at), delimiter tab",
		},
		{
			name:  "pins by position",
			kind:  Pins,
			f:     Format{Columns: []string{"owner", "pin", "attributes_base64"}, Header: HeaderNo},
			text:  "ann,p,YQ\n",
			want:  []string{"ann p YQ"},
			shape: "owner from column 1, pin from column 2, attributes_base64 from column 3, delimiter comma",
		},
		{
			name:  "plays without names",
			kind:  Plays,
			text:  "1 4 1254192988\n3 4 1254194656\n",
			want:  []string{"1 4 1254192988", "3 4 1254194656"},
			shape: "user from column 1, item from column 2, time from column 3, delimiter space",
		},
		{
			name:  "plays by other names",
			kind:  Plays,
			text:  "watched_at;movieId;viewer\n2024-01-01;m;ann\n",
			want:  []string{"ann m 2024-01-01"},
			shape: "user from column 3 (viewer), item from column 2 (movieId), time from column 1 (watched_at), delimiter semicolon",
		},
		{
			name:  "likes",
			kind:  Reactions,
			text:  "item_id,user_id\ni,ann\n",
			want:  []string{"ann i"},
			shape: "user from column 2 (user_id), item from column 1 (item_id), delimiter comma",
		},
		{
			name:  "a comment after the first row is a row",
			text:  "follower,user\n#ann,bob\n",
			want:  []string{"#ann bob"},
			shape: "follower from column 1 (follower), user from column 2 (user), delimiter comma",
		},
		{
			name:  "another delimiter",
			f:     Format{Delimiter: '|', Header: HeaderNo},
			text:  "ann|bob\n",
			want:  []string{"ann bob"},
			shape: "follower from column 1, user from column 2, delimiter '|'",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.kind == "" {
				tt.kind = Follows
			}
			shape, records, err := readRecords(t, tt.kind, tt.f, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if shape.String() != tt.shape {
				t.Errorf("shape:\n got %s\nwant %s", shape, tt.shape)
			}
			if diff := cmp.Diff(tt.want, describeRecords(records)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}

			// Rows are numbered from 1.
			for i, r := range records {
				if r.number != uint64(i+1) {
					t.Errorf("row %d: got the number %d, want %d", i+1, r.number, i+1)
				}
			}
		})
	}
}

// A file that can be read in two ways is refused: a wrong guess would reverse the follows.
func TestUncertainShapeIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind Kind
		f    Format
		text string
		want string
	}{
		{"empty", Follows, Format{}, "", "no rows"},
		{"comments only", Follows, Format{}, "# nothing\n\n", "no rows"},
		{"one column", Follows, Format{}, "ann\nbob\n", "--delimiter"},
		{"two followers", Follows, Format{}, "from,source,to\na,b,c\n", "columns 1 (from) and 2 (source) could both be the follower"},
		{"user and followee", Follows, Format{}, "user,followee\na,b\n", "columns 1 (user) and 2 (followee) could both be the user"},
		{"only one known name", Follows, Format{}, "follower,xyz\na,b\n", "which of the 2 columns is the user"},
		{"three columns, the third is no time", Follows, Format{}, "1 2 5\n2 3 4\n", "follower or the user"},
		{"four columns", Follows, Format{}, "1,2,3,4\n", "which of the 4 columns"},
		{"boards without names", Boards, Format{}, "ann,b1\n", "owner or the board"},
		{"mapping without user", Follows, Format{Columns: []string{"follower"}}, "a,b\n", "names no user"},
		{"mapping twice", Follows, Format{Columns: []string{"follower", "user", "user"}}, "a,b,c\n", "one column"},
		{"mapping to nothing", Follows, Format{Columns: []string{"follower", "owner"}}, "a,b\n", `"owner" is none of`},
		{"mapping beyond the row", Follows, Format{Columns: []string{"follower", "-", "user"}}, "1,2\n", "column 3"},
		{"mapping by unknown name", Follows, Format{Columns: []string{"follower=x", "user=y"}}, "x,z\na,b\n", `no column "y"`},
		{"mixed mapping", Follows, Format{Columns: []string{"follower", "user=b"}}, "a,b\n", "do not mix"},
		{
			"a line too long", Follows,
			Format{},
			"ann,bob\n" + strings.Repeat("x", maxRecordBytes+1) + "\nann,cid\n",
			"line 2 is longer than 1048576 bytes",
		},
		{
			"a quote that is lost", Follows,
			Format{},
			"ann,bob\n\"ann,bob\n" + strings.Repeat("ann,cid\n", maxRecordBytes/8),
			"line 2: a quoted field does not end",
		},
		{"pins without names", Pins, Format{}, "ann,p1\n", "owner or the pin"},
		{"a video may be the pin or the item", Pins, Format{}, "user_id,video_id,created_at\na,b,2024-01-01\n", "is the pin"},
		{"two owners of pins", Pins, Format{}, "user_id,author_id,pin_id\na,b,c\n", "could both be the owner"},
		{"two items", Plays, Format{}, "user,item,video\na,b,c\n", "could both be the item"},
		{"plays, the third is no time", Plays, Format{}, "1 2 5\n2 3 4\n", "user or the item"},
		{"a role of another kind", Reactions, Format{Columns: []string{"user", "item", "board"}}, "a,b,c\n", `"board" is none of`},
		{"names that are not known", Follows, Format{}, "fan,creator\n1,2\n", `("fan", "creator") could be a row or the names`},
		{"the error lists the known names", Follows, Format{}, "fan,creator\n1,2\n", "follower: follower, from, fromnode, fromuser, src, source, truster\n"},
		{"names with a number", Follows, Format{}, "user1,user2\n1,2\n", "--no-header if it is a row"},
		{"names in another alphabet", Follows, Format{}, "читатель,автор\n1,2\n", "--columns follower=NAME,user=NAME if it is not"},
		{"users that could be names", Follows, Format{}, "ann,bob\ncid,dan\n", "could be a row"},
		{"names above a mapping", Follows, Format{Columns: []string{"follower", "user"}}, "fan,creator\nann,bob\n", "--header if it is not"},
		{"names above a mapping by number", Plays, Format{Columns: []string{"user=1", "item=2"}}, "who what\n1 2\n", "--header if it is not"},
		{"a stream of JSON", Follows, Format{}, `{"to": "b,c", "from": "a"}` + "\n", `jq -r '[.["from"], .["to"]] | @csv'`},
		{"a stream of JSON whose objects are nested", Reactions, Format{}, `{"reacted":{"userId":"a","itemId":"b"}}` + "\n", "skein publish"},
		{"an array of JSON", Follows, Format{}, "[\n  [1, 2],\n  [3, 4]\n]\n", "looks like JSON"},
		{"an array of objects on one line", Follows, Format{}, `[{"from": "a", "to": "b"}]`, "looks like JSON"},
		{"no such kind", "songs", Format{}, "a,b\n", "cannot import"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shape, _, err := readRecords(t, tt.kind, tt.f, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want an error with %q", shape, err, tt.want)
			}
		})
	}
}

// The longest line that is allowed is read completely.
func TestLongestLineIsReadWhole(t *testing.T) {
	longest := strings.Repeat("x", maxRecordBytes-8)
	_, records, err := readRecords(t, Follows, Format{Header: HeaderNo}, "ann,bob\nann,"+longest+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := records[1].fields[user]; got != longest {
		t.Errorf("got %d bytes of the second field of a line of %d bytes, want %d", len(got), maxRecordBytes-4, len(longest))
	}
}

// FuzzRecords reads any text as a file of any kind. No record may be lost. Valid records become
// events, and the others become errors.
func FuzzRecords(f *testing.F) {
	allKinds := slices.Sorted(maps.Keys(kinds))
	for _, seed := range []string{
		"follower,user,time\nann,bob,2009-09-29\n",
		"# FromNodeId\tToNodeId\n1\t2\n",
		"1 4 1254192988\n",
		"\ufeffowner;board;title;follower\nann;b;\"x;\"\"y\"\"\";bob\n",
		"a,b\r\n\r\n,\n\x00,\xff\n",
		"owner,pin,board,item,repin_owner,repin_pin,attributes,attributes_base64\na,p,b,i,c,q,x,\na,p,,,,,,YQ==\na,p,,,c,,,_-8\n",
		"user,item,time\nann,i1,2009-09-29\nann,bad id,2009-09-29\n",
	} {
		for i := range allKinds {
			f.Add(seed, uint8(i))
		}
	}

	f.Fuzz(func(t *testing.T, text string, kindIndex uint8) {
		kind := allKinds[int(kindIndex)%len(allKinds)]
		shape, records, err := readRecords(t, kind, Format{}, text)
		if err != nil {
			return
		}

		// No record is lost: each line that is not blank is in a record, a comment, or in the
		// header.
		lines := 0
		for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), string(shape.lineEnd)) {
			if !isBlank(line) {
				lines++
			}
		}
		found := shape.comments
		for _, r := range records {
			for line := range strings.SplitSeq(r.line, "\n") {
				if !isBlank(line) {
					found++
				}
			}
		}
		if found > lines {
			t.Errorf("got %d lines in rows and comments, want at most the %d lines of the file", found, lines)
		}
		if !shape.headed && found != lines {
			t.Errorf("got %d lines in rows and comments, want all %d lines of a file without a header", found, lines)
		}

		tr := &translator{kind: kind, source: "fuzz", start: microsOf(start), shape: shape}
		for i, r := range records {
			if r.number != uint64(i+1) {
				t.Errorf("row %d: got the number %d, want %d", i+1, r.number, i+1)
			}
			evs, _, err := tr.translate(&r)
			if (len(evs) == 0) == (err == nil) {
				t.Errorf("row %q: got the events %v and the error %v, want either events or an error", r.line, evs, err)
			}

			// The independent reading of the comparison calls the same records valid.
			_, _, timeErr := shape.timeUnit.parseRecordTime(r.fields[when], tr.start)
			isValid := r.err == nil && kind.isValid(&r) && (timeErr == nil || !shape.hasTime())
			if isValid != (err == nil) {
				t.Errorf("row %q: the comparison calls it valid: %v, but the importer has the error %v", r.line, isValid, err)
			}

			// A service accepts the events that the importer makes.
			for _, ev := range evs {
				if rejection := events.Validate(ev); rejection != nil {
					t.Errorf("row %q: got the rejection %v of its event, want none", r.line, rejection)
				}
			}
		}
	})
}
