package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events/atomicfile"
)

// Reject is a record that was not taken.
type Reject struct {
	// Record is its number, from 1, comments and header not counted.
	Record uint64
	// Reason says why, for people.
	Reason string
	// Line is the record as it stands, or the beginning of a very long one.
	Line string
}

// rejectsHeader is the first line of the rejects. The line as it was comes last: it may have tabs of its own.
const rejectsHeader = "row\treason\tline\n"

func (r *Reject) append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, r.Record, 10)
	dst = append(append(dst, '\t'), strings.Join(strings.Fields(r.Reason), " ")...)
	dst = append(append(dst, '\t'), r.Line[:min(len(r.Line), keptLine)]...)
	return append(dst, '\n')
}

// rejects is the file of rejects. It is made when there is one.
type rejects struct {
	path string
	file *os.File
}

// openRejects continues with the rejects of an import that was interrupted after record done. Rejects of later records are
// dropped: these records are read again. A new import (done 0) drops them all.
func openRejects(path string, done uint64) (*rejects, error) {
	r := &rejects{path: path}
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
	lines.Buffer(nil, 4*keptLine)
	for lines.Scan() {
		number, _, _ := strings.Cut(lines.Text(), "\t")
		if n, err := strconv.ParseUint(number, 10, 64); err != nil || n > done {
			break
		}
		kept = append(append(kept, lines.Bytes()...), '\n')
	}
	if len(kept) == len(rejectsHeader) {
		return r, os.Remove(path)
	}
	return r, atomicfile.Write(path, kept)
}

// write appends rejects.
func (r *rejects) write(list []Reject) error {
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
		data = list[i].append(data)
	}
	_, err := r.file.Write(data)
	return err
}

// sync puts the rejects on disk before the state says that their records are done.
func (r *rejects) sync() error {
	if r.file == nil {
		return nil
	}
	return r.file.Sync()
}

func (r *rejects) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
