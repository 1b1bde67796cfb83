package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxRecordBytes is the size of the longest record that is read. Records of ids, a title and a time
// are much shorter.
const maxRecordBytes = 1 << 20

// maxKeptLine is how many bytes of a record are kept for the rejects.
const maxKeptLine = 4 << 10

// lineReader reads lines without their ends.
type lineReader struct {
	r *bufio.Reader
	// end is the last byte of a line: LF, or CR in files that have no LF.
	end byte
	// number is the number of the last line that was read, from 1.
	number int
	long   []byte // the buffer for long lines
	last   []byte // the last line
	// unread is set if nextLine must return the last line once more.
	unread bool
}

// newLineReader returns a reader of lines that end with the byte end.
func newLineReader(r io.Reader, end byte) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 256<<10), end: end}
}

// nextLine returns the next line without its end, or io.EOF. The line is valid until the next call.
func (l *lineReader) nextLine() ([]byte, error) {
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

	// The line is longer than the buffer, or it is the last one.
	l.long = l.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= maxRecordBytes {
		l.long = append(l.long, line...)
		line, err = l.r.ReadSlice(l.end)
	}
	l.long = append(l.long, line...)
	switch {
	case len(l.long) > maxRecordBytes:
		return nil, fmt.Errorf("line %d is longer than %d bytes", l.number+1, maxRecordBytes)
	case err == nil, errors.Is(err, io.EOF) && len(l.long) > 0:
		l.number++
		l.last = l.trimEnd(l.long)
		return l.last, nil
	}
	return nil, err
}

// unreadLine makes nextLine return the last line once more.
func (l *lineReader) unreadLine() { l.unread = true }

// trimEnd removes the end of a line. In files from Windows, the end is CR and LF.
func (l *lineReader) trimEnd(line []byte) []byte {
	if line[len(line)-1] == l.end {
		line = line[:len(line)-1]
	}
	return bytes.TrimSuffix(line, []byte("\r"))
}

// findLineEnd returns the byte with which the lines of a file end: CR if the file contains CR and
// no LF, LF otherwise.
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
