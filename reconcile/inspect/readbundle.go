package inspect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// What ReadBundle takes, so that no file, whatever is in it, makes it use more than about 2 GiB of memory.
const (
	maxBundle = 1 << 30  // bytes in all, uncompressed
	maxLine   = 16 << 20 // bytes in a line
	maxCommas = 1 << 20  // in a line: it has not many more values than commas, and each may take some 400 bytes
	maxMemory = 1 << 30  // bytes that the values take, about
)

// ReadBundle reads what [WriteBundle] has written. Its error names the line. It refuses what is not a bundle, and one
// of a later version. If the file is cut off or damaged, ReadBundle returns the bundle with what comes before the
// damage, and an error beside it; the pages of such a bundle show the error. The bundle is nil if nothing of the
// Manager can be read. ReadBundle uses at most about 2 GiB of memory, and refuses a bundle that needs more.
func ReadBundle(r io.Reader) (*Bundle, error) {
	unzipped, err := gzip.NewReader(r)
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("bundle: the file is empty")
	case errors.Is(err, gzip.ErrHeader):
		return nil, errors.New("bundle: the file is not compressed by gzip, as bundles are")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("bundle: the file is cut off in its first bytes")
	case err != nil:
		return nil, fmt.Errorf("bundle: %w", err)
	}
	in := newBundleReader(unzipped)
	if err := in.read(); err != nil {
		in.damage = fmt.Errorf("bundle: %w", err)
	}
	if !in.hasManager {
		return nil, in.damage
	}
	return in.Bundle, in.damage
}

// bundleReader reads the lines of a bundle.
type bundleReader struct {
	*Bundle
	rest       *io.LimitedReader // of the uncompressed file
	lines      *bufio.Scanner
	n          int // lines that have been taken
	hasManager bool
	memory     int // bytes that the values take, about
}

func newBundleReader(from io.Reader) *bundleReader {
	r := &bundleReader{rest: &io.LimitedReader{R: from, N: maxBundle},
		Bundle: &Bundle{Keys: make(map[string][]status.KeySummary),
			Details: make(map[string]map[reconcile.Key]status.Key)}}
	r.lines = bufio.NewScanner(r.rest)
	r.lines.Buffer(nil, maxLine)
	r.lines.Split(wholeLines)
	return r
}

var errNoLineFeed = errors.New("a line without an end")

// wholeLines splits at line feeds. What follows the last of them is not a line: the file has been cut off there.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, errNoLineFeed
	}
	return 0, nil, nil
}

// read takes all lines.
func (r *bundleReader) read() error {
	for {
		if !r.lines.Scan() {
			return r.ended()
		}
		last, err := r.take(r.lines.Bytes())
		if err != nil {
			return fmt.Errorf("line %d: %w", r.n+1, err)
		}
		r.n++
		if last {
			break
		}
	}
	if r.lines.Scan() || errors.Is(r.lines.Err(), errNoLineFeed) {
		return errors.New("something follows its last line")
	}
	if err := r.lines.Err(); err != nil {
		return fmt.Errorf("after its last line: %w", err)
	}
	return nil
}

// ended says why there is no further line although the last one has not come.
func (r *bundleReader) ended() error {
	err := r.lines.Err()
	switch {
	case r.rest.N <= 0:
		return fmt.Errorf("it has more than %d MiB, uncompressed", maxBundle>>20)
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("line %d has more than %d MiB", r.n+1, maxLine>>20)
	case err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errNoLineFeed):
		return fmt.Errorf("it is cut off after line %d", r.n)
	}
	return fmt.Errorf("after line %d: %w", r.n, err)
}

// take takes the next line. last says that it is the last one.
func (r *bundleReader) take(text []byte) (last bool, err error) {
	if bytes.Count(text, []byte{','}) > maxCommas {
		return false, fmt.Errorf("it has more than %d values", maxCommas)
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return false, err
	}
	if r.memory += memoryOf(reflect.ValueOf(l)); r.memory > maxMemory {
		return false, fmt.Errorf("with it the bundle takes more than %d MiB of memory", maxMemory>>20)
	}
	if r.n == 0 {
		return false, r.takeHead(l.Bundle)
	}
	switch {
	case l.Bundle != nil:
		return false, errors.New("another bundle begins")
	case l.Manager != nil && r.hasManager:
		return false, errors.New("another manager follows the first")
	case l.Manager != nil:
		r.Manager, r.hasManager = *l.Manager, true
	case l.Keys != nil:
		return false, r.takeKeys(l.Keys)
	case l.Key != nil:
		return false, r.takeKey(l.Key)
	case l.End != nil && !r.hasManager:
		return false, errors.New("the bundle ends without a manager")
	case l.End != nil && l.End.Lines != r.n:
		return false, fmt.Errorf("the bundle was written with %d lines before this one, and has %d", l.End.Lines, r.n)
	}
	return l.End != nil, nil
}

func (r *bundleReader) takeHead(head *bundleHead) error {
	switch {
	case head == nil:
		return errors.New("this is not a bundle")
	case head.Version != bundleVersion:
		return fmt.Errorf("the bundle has version %d, and this program reads version %d", head.Version, bundleVersion)
	}
	r.Created, r.Program, r.Go = head.Created, head.Program, head.Go
	return nil
}

func (r *bundleReader) takeKeys(of *bundleKeys) error {
	if err := r.knows(of.Controller); err != nil {
		return err
	}
	r.Keys[of.Controller] = append(r.Keys[of.Controller], of.Keys...)
	return nil
}

func (r *bundleReader) takeKey(k *status.Key) error {
	if err := r.knows(k.Controller); err != nil {
		return err
	}
	if r.Details[k.Controller] == nil {
		r.Details[k.Controller] = make(map[reconcile.Key]status.Key)
	}
	r.Details[k.Controller][reconcile.Key{Namespace: k.Namespace, Name: k.Name}] = *k
	return nil
}

// knows returns an error unless the manager's line, which comes first, has the controller.
func (r *bundleReader) knows(controller string) error {
	switch {
	case !r.hasManager:
		return errors.New("it comes before the manager")
	case !slices.Contains(r.controllers(), controller):
		return fmt.Errorf("the manager has no controller %q", controller)
	}
	return nil
}

// memoryOf returns about how many bytes v takes, without itself.
func memoryOf(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			n = int(v.Type().Elem().Size()) + memoryOf(v.Elem())
		}
	case reflect.Slice:
		n = v.Len() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			n += memoryOf(v.Index(i))
		}
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			if _, offset := at.Zone(); offset%3600 != 0 {
				n = 160 // a zone of its own
			}
			return n
		}
		for i := range v.NumField() {
			n += memoryOf(v.Field(i))
		}
	}
	return n
}
