package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLine is the longest record, in bytes, that is read. No record of ids, a title and a time is nearly as long.
const maxLine = 1 << 20

// keptLine is the number of bytes of a record that are kept for the rejects.
const keptLine = 4 << 10

// lineReader reads lines without their ends.
type lineReader struct {
	r *bufio.Reader
	// end is the last byte of a line: LF, or CR in files without LF.
	end byte
	// number is the number of the line that was read last, from 1.
	number int
	long   []byte
	// unread reports whether next returns last, the last line, once more.
	unread bool
	last   []byte
}

func newLineReader(r io.Reader, end byte) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 256<<10), end: end}
}

// next returns the next line, valid until the next call, or io.EOF.
func (l *lineReader) next() ([]byte, error) {
	if l.unread {
		l.unread = false
		return l.last, nil
	}
	line, err := l.r.ReadSlice(l.end)
	if err == nil {
		l.number++
		l.last = l.trimEnd(line)
		return l.last, nil
	}

	// The line is longer than the buffer, or the last one.
	l.long = l.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= maxLine {
		l.long = append(l.long, line...)
		line, err = l.r.ReadSlice(l.end)
	}
	l.long = append(l.long, line...)
	switch {
	case len(l.long) > maxLine:
		return nil, fmt.Errorf("line %d is longer than %d bytes", l.number+1, maxLine)
	case err == nil, errors.Is(err, io.EOF) && len(l.long) > 0:
		l.number++
		l.last = l.trimEnd(l.long)
		return l.last, nil
	}
	return nil, err
}

// back has next return the last line once more.
func (l *lineReader) back() { l.unread = true }

// trimEnd removes the end of a line, which is CR and LF in files from Windows.
func (l *lineReader) trimEnd(line []byte) []byte {
	if line[len(line)-1] == l.end {
		line = line[:len(line)-1]
	}
	return bytes.TrimSuffix(line, []byte("\r"))
}

// findLineEnd returns the byte with which the lines of a file end: CR if there is one and no LF, otherwise LF.
func findLineEnd(r *bufio.Reader) (byte, error) {
	end := byte('\n')
	for {
		_, err := r.Peek(1)
		chunk, _ := r.Peek(r.Buffered())
		switch {
		case bytes.IndexByte(chunk, '\n') >= 0:
			return '\n', nil
		case bytes.IndexByte(chunk, '\r') >= 0:
			end = '\r'
		}
		_, _ = r.Discard(len(chunk)) // it is buffered
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
