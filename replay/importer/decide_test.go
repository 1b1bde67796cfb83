package importer

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// An import cannot be undone. So a file that can be read in two ways, or not at all, publishes
// nothing, and the error says what to do.
func TestAmbiguousFilePublishesNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind Kind
		f    Format
		text string
		want string
	}{
		{
			"rows that begin with #", Reactions,
			Format{},
			"#golang,y,2024-03-01\n#rust,y,2024-03-01\nann,y,2024-03-01\n",
			`line 1 ("#golang,y,2024-03-01") begins with # and could be a row, the names of the columns or a comment: give --no-header if it is a row`,
		},
		{"every row begins with #", Reactions, Format{}, "#golang,y\n#rust,y\n", `line 1 ("#golang,y") begins with # and could be a row`},
		{
			"a row that begins with # and spans lines", Plays,
			Format{Header: HeaderNo, Columns: []string{"user", "item", "-"}},
			"#ann,i,\"x\nvictim,evil,y\"\n",
			`line 1 ("#ann,i,\"x") begins with # and has quotes that do not enclose a field`,
		},
		{
			"a title that begins with #", Boards,
			Format{Columns: []string{"title", "owner", "board"}, Header: HeaderNo},
			"# one,ann,b1\n# two,ann,b2\nthree,ann,b3\n", `line 1 ("# one,ann,b1") begins with # and could be a row or a comment`,
		},
		{
			"two delimiters", Follows,
			Format{},
			strings.Repeat("a;b;1577836800,5\n", 2),
			`it could be delimited by comma (first row: "a;b;1577836800", "5") or by semicolon (first row: "a", "b", "1577836800,5"): give --delimiter`,
		},
		{
			"two delimiters, of which one finds no columns", Reactions,
			Format{},
			"ann;item-1;Hello, world\nbob;item-2;Well, well\n",
			"give --delimiter",
		},
		{
			"a unit of time that lies in the future", Follows,
			Format{},
			"follower,user,created_at\nann,bob,20171121123000\n",
			"the time … would be …, which is more than a day after the start of the import",
		},
		{
			"a date without separators", Follows,
			Format{},
			"follower,user,created_at\nann,bob,20171121\n",
			"the time … would be …, which is before 1990: give --time-unit",
		},
		{"ranks as times", Follows, Format{}, "follower,user,created\nann,bob,11\nann,cid,12\n", "--time-unit"},
		{
			"two units of time", Follows,
			Format{},
			"follower,user,time\nann,bob,1746403200\nann,cid,1767225600000\n",
			`column 3 (time) has numbers that look like seconds (row 1: "1746403200") and like milliseconds (row 2: "1767225600000"): give --time-unit`,
		},
		{
			"times of tomorrow and later", Follows,
			Format{},
			"follower,user,time\nann,bob,2026-03-06\n",
			"is more than a day after the start of the import",
		},
		{
			"a column of dates that is not used", Follows,
			Format{},
			"follower,user,Datum\nann,bob,2024-03-01\nann,cid,2024-03-02\n",
			`column 3 (Datum) has times, but it is not known as the time`,
		},
		{
			"a column of unix times that is not used", Follows,
			Format{},
			"follower,user,x\nann,bob,1577836800\nann,cid,1577836801\n",
			`column 3 (x) has times`,
		},
		{
			"a column of dates that nobody can read", Follows,
			Format{},
			"follower,user,Datum\nann,bob,21.11.2017 12:30\n",
			`column 3 (Datum) has times`,
		},
		{
			"NULL as a board", Pins,
			Format{},
			"owner,pin,board\nann,p1,bread\nann,p2,NULL\n",
			`column 3 (board), the board, is "NULL" in 1 rows, first in row 2: give --null NULL if that stands for an absent value, or --null= if it does not`,
		},
		{"NULL as a user", Follows, Format{}, "follower,user\nann,NULL\n", "--null NULL"},
		{"null as a re-pin", Pins, Format{}, "owner,pin,repin_owner,repin_pin\nann,p1,null,null\n", "--null null"},
		{"None as an item", Plays, Format{}, "user,item\nann,None\n", "--null None"},
		{
			"a quote that does not end", Boards,
			Format{},
			"owner,board,title\nann,b1,\"open\nann,b2,x\n",
			"line 2: a quoted field does not end",
		},
		{
			"text after the closing quote", Boards,
			Format{},
			"owner,board,title\nann,b1,\"a\"b\n",
			"line 2: a quoted field is followed by text",
		},
		{
			"quotes that span lines between tabs", Boards,
			Format{},
			"owner\tboard\ttitle\nann\tb1\t\"open\nann\tb2\tend\"\n",
			"--no-quotes",
		},
		{
			"quotes that do not enclose a field between tabs", Boards,
			Format{},
			"owner\tboard\ttitle\nann\tb1\t\"Bread\" and cakes\n", "--no-quotes",
		},
		{
			"a name of two columns", Follows,
			Format{Columns: []string{"follower=who", "user=whom"}},
			"who,whom,who\na,b,c\n",
			"columns 1 and 3 are both named who: give the number of one",
		},
		{"an id of the first row that occurs again", Follows, Format{}, "fan,creator\ncid,dan\nfan,dan\n", "could be a row or the names"},
		{
			"NULL in the row after names that begin with #", Follows,
			Format{Header: HeaderYes, Columns: []string{"follower=f", "user=u"}},
			"#f,u\nann,bob\nann,NULL\n",
			"first in row 2",
		},
		{"NULL in a row that begins with #", Reactions, Format{Header: HeaderNo}, "#golang,y\n#rust,NULL\nann,y\n", "first in row 2"},
		{"a first row above numbers", Follows, Format{}, "user_1a,user_2b\n1,2\n3,4\n", "could be a row or the names"},
		{"a NUL byte", Follows, Format{}, "ann,bob\nci\x00d,bob\n", "has a NUL byte"},
		{
			"more bad rows than allowed", Follows,
			Format{},
			"follower,user\nann,bob\nann,ann\n",
			"1 of 2 records were rejected, and --max-rejects allows only 0",
		},
		{
			"the names of the columns once more", Follows,
			Format{},
			"follower,user\nann,bob\nfollower,user\nann,cid\n",
			"1 of 3 records were rejected, and --max-rejects allows only 0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newFakeLog(t)
			o := options(t, l, tt.text)
			o.Kind, o.Format = tt.kind, tt.f

			report, err := Run(t.Context(), o)
			if err == nil {
				t.Fatalf("got no error, want one with %q", tt.want)
			}

			// The error or a reason of a reject says what is ambiguous.
			text := err.Error()
			if report != nil {
				for i := range report.Reasons {
					text += "\n" + report.Reasons[i].String()
				}
			}
			if !strings.Contains(text, tt.want) {
				t.Errorf("got the error and reasons %q, want %q in them", text, tt.want)
			}
			if l.calls > 0 {
				t.Errorf("got %d calls of Publish with the events %q, want none", l.calls, l.described)
			}
		})
	}
}

// What a file says is published, and what it only quotes is not.
func TestFileIsReadAsItWasWritten(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind Kind
		f    Format
		text string
		want []string
	}{
		{
			"hashtags are rows with --no-header", Reactions,
			Format{Header: HeaderNo},
			"#golang,y,2024-03-01\n#rust,y,2024-03-01\nann,y,2024-03-01\n",
			[]string{
				"1 reacted #golang y 2024-03-01 00:00:00", "2 reacted #rust y 2024-03-01 00:00:00", "3 reacted ann y 2024-03-01 00:00:00",
			},
		},
		{
			"the names of columns begin with # with --header", Reactions,
			Format{Header: HeaderYes, Columns: []string{"user=u", "item=i"}},
			"#u,i\n#rust,y\n",
			[]string{"1 reacted #rust y 2026-03-04 05:06:07"},
		},
		{
			"a comment that names the columns", Follows,
			Format{},
			"# a graph\n#FromNodeId\tToNodeId\n1\t2\n",
			[]string{`1 user_followed 1 2 "" 2026-03-04 05:06:07`},
		},
		{
			"columns that only one delimiter has", Reactions,
			Format{Columns: []string{"user", "item", "-"}, Header: HeaderNo},
			"ann;item-1;Hello, world\n",
			[]string{"1 reacted ann item-1 2026-03-04 05:06:07"},
		},
		{
			"names that only one delimiter finds", Pins,
			Format{},
			"owner;pin;x,y\nann;p1;1,2\n",
			[]string{`1 pin_created ann/p1 on "" item p1 "" 2026-03-04 05:06:07`},
		},
		{
			"times with a space do not make spaces the delimiter", Follows,
			Format{},
			"ann,bob,2024-03-01 10:00:00\ncid,bob,2024-03-02 10:00:00\n",
			[]string{`1 user_followed ann bob "" 2024-03-01 10:00:00`, `2 user_followed cid bob "" 2024-03-02 10:00:00`},
		},
		{
			"a unit that is given", Follows,
			Format{TimeUnit: "s"},
			"follower,user,time\nann,bob,11\nann,cid,1709251200\n",
			[]string{`1 user_followed ann bob "" 1970-01-01 00:00:11`, `2 user_followed ann cid "" 2024-03-01 00:00:00`},
		},
		{
			"small numbers of milliseconds", Follows,
			Format{TimeUnit: "ms"},
			"follower,user,time\nann,bob,86400000\nann,cid,1709251200000\n",
			[]string{`1 user_followed ann bob "" 1970-01-02 00:00:00`, `2 user_followed ann cid "" 2024-03-01 00:00:00`},
		},
		{
			"a time within a day after the start is cut to the start", Follows,
			Format{},
			"follower,user,time\nann,bob,2026-03-05\n",
			[]string{`1 user_followed ann bob "" 2026-03-04 05:06:07`},
		},
		{
			"a column of times that is left out", Follows,
			Format{Columns: []string{"follower", "user", "-"}},
			"follower,user,Datum\nann,bob,2024-03-01\n",
			[]string{`1 user_followed ann bob "" 2026-03-04 05:06:07`},
		},
		{
			`\N is an absent value`, Pins,
			Format{},
			"owner\tpin\tboard\tattributes\nann\tp1\t\\N\t\\N\n",
			[]string{`1 pin_created ann/p1 on "" item p1 "" 2026-03-04 05:06:07`},
		},
		{
			"the text of an absent value", Pins,
			Format{Null: []string{"NULL", "-"}},
			"owner,pin,board,item\nann,p1,NULL,-\n",
			[]string{`1 pin_created ann/p1 on "" item p1 "" 2026-03-04 05:06:07`},
		},
		{
			"a board named NULL", Pins,
			Format{Null: []string{""}},
			"owner,pin,board\nann,p1,NULL\n",
			[]string{`1 pin_created ann/p1 on "NULL" item p1 "" 2026-03-04 05:06:07`},
		},
		{
			"a quoted field that spans lines is one field", Pins,
			Format{},
			"owner,pin,attributes,time\no,p1,\"hello\nvictim,evil,pwned,2024-03-01\n\",2024-03-01\no,p2,,2024-03-02\n",
			[]string{
				`1 pin_created o/p1 on "" item p1 "hello\nvictim,evil,pwned,2024-03-01\n" 2024-03-01 00:00:00`,
				`2 pin_created o/p2 on "" item p2 "" 2024-03-02 00:00:00`,
			},
		},
		{
			"quotes around ids between tabs", Follows,
			Format{},
			"\"nf1\"\t\"nf2\"\n\"nf3\"\t\"nf2\"\n",
			[]string{`1 user_followed nf1 nf2 "" 2026-03-04 05:06:07`, `2 user_followed nf3 nf2 "" 2026-03-04 05:06:07`},
		},
		{
			"quotes around ids between spaces", Follows,
			Format{},
			"\"nf1\" \"nf2\"\n\"nf3\" \"nf2\"\n",
			[]string{`1 user_followed nf1 nf2 "" 2026-03-04 05:06:07`, `2 user_followed nf3 nf2 "" 2026-03-04 05:06:07`},
		},
		{
			"quotes that are no quotes", Boards,
			Format{Quotes: new(bool)},
			"owner\tboard\ttitle\nann\tb1\t\"Bread\" and cakes\n",
			[]string{`1 board_created ann b1 "\"Bread\" and cakes" 2026-03-04 05:06:07`},
		},
		{
			"lines that end with CR", Follows,
			Format{},
			"follower,user\rann,bob\rann,cid\r",
			[]string{`1 user_followed ann bob "" 2026-03-04 05:06:07`, `2 user_followed ann cid "" 2026-03-04 05:06:07`},
		},
		{
			"the follows of one user, one of them twice", Follows,
			Format{},
			"ann,bob\nann,cid\nann,bob\n",
			[]string{
				`1 user_followed ann bob "" 2026-03-04 05:06:07`, `2 user_followed ann cid "" 2026-03-04 05:06:07`,
				`3 user_followed ann bob "" 2026-03-04 05:06:07`,
			},
		},
		{
			"every row begins with #, with --no-header", Reactions,
			Format{Header: HeaderNo},
			"#golang,y\n#rust,y\n",
			[]string{"1 reacted #golang y 2026-03-04 05:06:07", "2 reacted #rust y 2026-03-04 05:06:07"},
		},
		{
			"the follows of one user", Follows,
			Format{},
			"ann,bob\nann,cid\nann,dan\n",
			[]string{
				`1 user_followed ann bob "" 2026-03-04 05:06:07`, `2 user_followed ann cid "" 2026-03-04 05:06:07`,
				`3 user_followed ann dan "" 2026-03-04 05:06:07`,
			},
		},
		{
			"the follows of one user who is not in the file", Follows,
			Format{Constants: map[string]string{"follower": "ann"}, Header: HeaderNo},
			"bob\ncid\n",
			[]string{`1 user_followed ann bob "" 2026-03-04 05:06:07`, `2 user_followed ann cid "" 2026-03-04 05:06:07`},
		},
		{
			"a constant beside names", Follows,
			Format{Constants: map[string]string{"follower": "ann"}},
			"user,time\nbob,2024-03-01\n",
			[]string{`1 user_followed ann bob "" 2024-03-01 00:00:00`},
		},
		{
			"names that two unused columns share", Follows,
			Format{},
			"follower,user,note,note\nann,bob,x,y\n",
			[]string{`1 user_followed ann bob "" 2026-03-04 05:06:07`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newFakeLog(t)
			o := options(t, l, tt.text)
			o.Kind, o.Format = tt.kind, tt.f

			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatalf("got the error %v and the report %+v, want no error", err, report)
			}
			if diff := cmp.Diff(tt.want, l.described); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// If a file is not text, the error names its format, even inside a gzip file.
func TestForeignFilesAreNamed(t *testing.T) {
	tar := make([]byte, 1024)
	copy(tar, "follows.csv")
	copy(tar[257:], "ustar")

	for _, tt := range []struct{ name, begin, want string }{
		{"zip", "PK\x03\x04\x14\x00\x00\x00", "zip archive"},
		{
			"xlsx",
			"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00!\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x13\x00\x00\x00[Content_Types].xml",
			"Excel workbook (xlsx)",
		},
		{"xls", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "xls"},
		{"parquet", "PAR1\x15\x04", "Parquet"},
		{"bzip2", "BZh91AY&SY", "bzip2"},
		{"xz", "\xfd7zXZ\x00", "xz"},
		{"7z", "7z\xbc\xaf\x27\x1c", "7z"},
		{"rar", "Rar!\x1a\x07\x00", "rar"},
		{"lz4", "\x04\x22\x4d\x18", "lz4"},
		{"tar", string(tar), "tar archive"},
		{"avro", "Obj\x01\x04", "Avro"},
		{"orc", "ORC\x08", "ORC"},
		{"arrow", "ARROW1\x00\x00", "Arrow"},
		{"sqlite", "SQLite format 3\x00", "SQLite"},
		{"redis", "REDIS0009\xfa", "skein import redis"},
		{"pg_dump", "PGDMP\x01\x0e", "pg_dump"},
		{"pdf", "%PDF-1.7\n", "PDF"},
		{"html", "<!DOCTYPE html>\n<html>", "HTML"},
		{"utf-16, little endian", "\xff\xfe" + utf16Text(binary.LittleEndian, "ann,bob\n"), "UTF-16"},
		{"utf-16, big endian", "\xfe\xff" + utf16Text(binary.BigEndian, "ann,bob\n"), "UTF-16"},
		{"utf-16 without a mark", utf16Text(binary.LittleEndian, "ann,bob\n"), "UTF-16"},
		{"utf-32", "\xff\xfe\x00\x00a\x00\x00\x00", "UTF-32"},
	} {
		var gz bytes.Buffer
		w := gzip.NewWriter(&gz)
		_, err := w.Write([]byte(tt.begin))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}

		for packing, text := range map[string]string{"plain": tt.begin, "inside gzip": gz.String()} {
			t.Run(tt.name+" "+packing, func(t *testing.T) {
				l := newFakeLog(t)
				_, err := Run(t.Context(), options(t, l, text))
				if err == nil || !strings.Contains(err.Error(), tt.want) || l.calls > 0 {
					t.Errorf("got %v after %d calls, want an error with %q after none", err, l.calls, tt.want)
				}
			})
		}
	}
}

// A row may begin with the same letters as a binary format.
func TestTextThatBeginsLikeAnotherFormatIsRead(t *testing.T) {
	for _, user := range []string{"ORC", "PAR1", "BZh9", "Obj", "REDIS0", "LZIP", "ARROW1", "7z"} {
		l := newFakeLog(t)
		o := options(t, l, user+",bob\n")
		o.Format.Header = HeaderNo
		if mustRun(t, o); len(l.described) != 1 {
			t.Errorf("a file that begins with %s: got the events %q, want 1 event", user, l.described)
		}
	}
}

// utf16Text returns the text in UTF-16 without a byte order mark.
func utf16Text(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

func TestZstdWithASkippableFrameIsRead(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	const skippable = "\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
	compressed := string(w.EncodeAll([]byte(followLines(10)), nil))

	report := mustRun(t, options(t, newFakeLog(t), skippable+compressed))
	if report.Events != 10 {
		t.Errorf("got %d events, want 10", report.Events)
	}
}
