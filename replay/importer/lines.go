package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLine is the longest line, in bytes, that is read as a record. No record of ids, a title and a time is nearly as long.
const maxLine = 1 << 20

// keptLine is the number of bytes of a line that are kept for the rejects.
const keptLine = 4 << 10

// peekBytes is the number of bytes of a file from which its shape is learned.
const peekBytes = 64 << 10

var errFirstLine = fmt.Errorf("the first line is longer than %d bytes", peekBytes)

// lineReader reads lines without their ends.
type lineReader struct {
	r    *bufio.Reader
	long []byte
}

func newLineReader(r io.Reader) *lineReader {
	l := &lineReader{r: bufio.NewReaderSize(r, 4*peekBytes)}
	if mark, err := l.r.Peek(3); err == nil && bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = l.r.Discard(len(mark)) // the byte order mark that some exports begin with; it is buffered
	}
	return l
}

// peek returns the complete lines within the first 64 KiB; all lines, if the file is shorter.
func (l *lineReader) peek() ([][]byte, error) {
	head, err := l.r.Peek(peekBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err == nil { // the file continues: the last line may be incomplete
		head = head[:bytes.LastIndexByte(head, '\n')+1]
		if len(head) == 0 {
			return nil, errFirstLine
		}
	}
	var lines [][]byte
	for len(head) > 0 {
		line, rest, _ := bytes.Cut(head, []byte("\n"))
		lines, head = append(lines, trimEnd(line)), rest
	}
	return lines, nil
}

// next returns the next line, valid until the next call. If the line is longer than maxLine, it returns the beginning, and tooLong is set.
func (l *lineReader) next() (line []byte, tooLong bool, err error) {
	line, err = l.r.ReadSlice('\n')
	if err == nil {
		return trimEnd(line[:len(line)-1]), false, nil
	}
	l.long = l.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(l.long) <= maxLine {
			l.long = append(l.long, line...)
		}
		line, err = l.r.ReadSlice('\n')
	}
	if len(l.long) <= maxLine {
		l.long = append(l.long, line...)
	}
	switch {
	case err == nil, errors.Is(err, io.EOF) && len(l.long) > 0:
	default:
		return nil, false, err
	}
	if len(l.long) > maxLine {
		return l.long[:keptLine], true, nil
	}
	return trimEnd(bytes.TrimSuffix(l.long, []byte("\n"))), false, nil
}

func trimEnd(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\r")) }
