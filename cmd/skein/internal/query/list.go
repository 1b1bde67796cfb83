package query

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// pageFlags are the flags of every command that prints a list by pages. A command that embeds
// pageFlags sets two variables of the help in its tag: pageDefault, the page size that its method
// of the API uses by default, and pageMost, the largest page size that the method allows.
type pageFlags struct {
	PageSize  int32  `help:"Entries per page, at most ${pageMost}; 0 means ${pageDefault}." default:"0"`
	PageToken string `help:"Begin where an earlier page ended." placeholder:"TOKEN" xor:"start"`
	All       bool   `help:"Print all pages, to the end of the list."`
}

// largestPage is the page size with which --all reads a list. A method that allows less answers
// with its own largest page.
const largestPage = 1000

// page is the response of a method that answers with one page of a list.
type page interface {
	answer
	GetNextPageToken() string
}

// list prints the page of a list at which --page-token points, or with --all that page and all
// later ones. The request says which list; list itself sets the fields page_size, page_token and
// at_least, which the requests of all lists have. rowsOf returns the rows that a page adds to the
// table. With --json, list prints the pages themselves and does not call rowsOf.
//
// Request and Page are the pointers to Req and Res. See call for the reason.
func list[Req, Res any, Request interface {
	*Req
	proto.Message
}, Page interface {
	*Res
	page
}](
	ctx context.Context, q *Cmd, std *command.Streams, flags *pageFlags, method command.Method[Req, Res], request Request,
	header []string, rowsOf func(Page) [][]string,
) error {
	size := flags.PageSize
	if flags.All && size == 0 {
		size = largestPage
	}
	setField(request, "page_size", protoreflect.ValueOfInt32(size))
	setField(request, "at_least", protoreflect.ValueOfString(q.AtLeast))

	var t *command.Table
	if !q.JSON {
		t = command.NewTable(std.Out, header...)
	}
	token := flags.PageToken
	rowCount := 0
	for {
		// Without a token the field stays unset: the feed has another field in its place, which
		// says where its first page begins.
		if token != "" {
			setField(request, "page_token", protoreflect.ValueOfString(token))
		}
		res, err := command.Call(ctx, &q.ClientFlags, method, (*Req)(request))
		if err != nil {
			return err
		}
		page := Page(res)
		token = page.GetNextPageToken()
		isLast := token == "" || !flags.All

		if q.JSON {
			if err := command.PrintJSON(std.Out, page); err != nil || isLast {
				return err
			}
			continue
		}

		for _, row := range rowsOf(page) {
			t.Row(row...)
			rowCount++
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if isLast {
			sayPageEnd(std, page, rowCount)
			return nil
		}
	}
}

// sayPageEnd says how many entries of the list were printed, at which position, and how to
// continue.
func sayPageEnd(std *command.Streams, last page, rowCount int) {
	of := ""
	if sized, ok := last.(interface{ GetTotalSize() uint32 }); ok {
		of = fmt.Sprintf(" of %d", sized.GetTotalSize())
	}
	std.Sayf("%d%s, at position %s", rowCount, of, last.GetPosition())
	if token := last.GetNextPageToken(); token != "" {
		std.Sayf("more: --page-token %s", token)
	}
}

// mapRows returns a row for each entry.
func mapRows[Entry any](entries []Entry, rowOf func(Entry) []string) [][]string {
	rows := make([][]string, len(entries))
	for i, entry := range entries {
		rows[i] = rowOf(entry)
	}
	return rows
}
