package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/atomicfile"
)

// Reject is a rejected record.
type Reject struct {
	// Record is the number of the record, from 1. Comments and the header do not count.
	Record uint64
	// Reason says why it was rejected, for people.
	Reason string
	// Line is the record as it was read, or the beginning of a very long one.
	Line string
}

// rejectsHeader is the first line of the file of rejects. The record is in the last column, because
// it may contain tabs.
const rejectsHeader = "row\treason\tline\n"

// appendTo appends the reject as a line of the file.
func (r *Reject) appendTo(dst []byte) []byte {
	dst = strconv.AppendUint(dst, r.Record, 10)
	dst = append(dst, '\t')
	dst = append(dst, events.EscapeControls(strings.Join(strings.Fields(r.Reason), " "))...)
	dst = append(dst, '\t')
	// Escape control characters, because what others wrote must not reach a terminal as it is, and
	// a record may span lines. Keep tabs, which may be the delimiter.
	for i, field := range strings.Split(r.Line[:min(len(r.Line), maxKeptLine)], "\t") {
		if i > 0 {
			dst = append(dst, '\t')
		}
		dst = append(dst, events.EscapeControls(field)...)
	}
	return append(dst, '\n')
}

// rejectsFile is the file of rejects. It is created when the first reject is written.
type rejectsFile struct {
	path string
	file *os.File
}

// openRejects opens the rejects of an import that was interrupted after the record with the number
// done. It removes the rejects of later records, because these records are read again. For a new
// import, done is 0, and all rejects are removed.
func openRejects(path string, done uint64) (*rejectsFile, error) {
	r := &rejectsFile{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(data, []byte(rejectsHeader)) {
		return nil, fmt.Errorf("%s is there and has no rejects: give --rejects", path)
	}

	kept := []byte(rejectsHeader)
	lines := bufio.NewScanner(bytes.NewReader(data[len(kept):]))
	lines.Buffer(nil, 16*maxKeptLine) // an escaped line has up to four times as many bytes
	for lines.Scan() {
		number, _, _ := strings.Cut(lines.Text(), "\t")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n > done {
			break // a crash may have cut off the last line
		}
		kept = append(kept, lines.Bytes()...)
		kept = append(kept, '\n')
	}
	if len(kept) == len(rejectsHeader) {
		return r, os.Remove(path)
	}
	return r, atomicfile.Write(path, kept)
}

// write appends rejects to the file.
func (r *rejectsFile) write(list []Reject) error {
	if len(list) == 0 {
		return nil
	}
	var data []byte
	if r.file == nil {
		f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		r.file = f
		if info, err := f.Stat(); err == nil && info.Size() == 0 {
			data = append(data, rejectsHeader...)
		}
	}
	for i := range list {
		data = list[i].appendTo(data)
	}
	_, err := r.file.Write(data)
	return err
}

// sync makes the rejects durable. Call it before the state says that their records are done.
func (r *rejectsFile) sync() error {
	if r.file == nil {
		return nil
	}
	return r.file.Sync()
}

// close closes the file, if there is one.
func (r *rejectsFile) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
