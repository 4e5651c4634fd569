package reconciletest

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
)

// processKey is that of a process in its ctx; [directKey] that of a ctx whose requests do not wait for their turn.
type (
	processKey struct{}
	directKey  struct{}
)

// processLabel is the label of pprof that the goroutines of a run have, since each has the labels of the one that has
// started it: the number of their process in gates.launched. So a request without the ctx of Run has a process, too.
const processLabel = "reconciletest.process"

// directly are the labels of goroutines whose requests do not wait for their turn: the driver, the goroutines of steps,
// and those that serve an API.
var directly = pprof.WithLabels(context.Background(), pprof.Labels(processLabel, "none"))

// callerOf returns the run that a request belongs to, and the process that makes it; no process: it is made by a step,
// or by an API. No run: it has nothing to do with Check.
func (e *exit) callerOf(ctx context.Context) (*gates, *process, error) {
	direct := ctx.Value(directKey{}) != nil
	if p, ok := ctx.Value(processKey{}).(*process); ok && !direct {
		return p.gates, p, nil
	}
	goroutine, bubble := whereAmI()
	e.mu.Lock()
	gs := e.bubbles[bubble]
	e.mu.Unlock()
	if gs == nil || direct || goroutine == gs.driver {
		return gs, nil, nil
	}
	p, err := gs.labelled(e.label())
	return gs, p, err
}

// label returns the processLabel of the calling goroutine; empty: it has none.
func (e *exit) label() string {
	e.profiling.Lock()
	defer e.profiling.Unlock()
	return ownLabel()
}

var labelText = regexp.MustCompile(`"` + processLabel + `":"([^"]*)"`)

// ownLabel finds the calling goroutine in a profile of all, as the only one that is in this function. The caller holds
// exit.profiling.
func ownLabel() string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return ""
	}
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(record, "/reconciletest.ownLabel+") {
			if label := labelText.FindStringSubmatch(record); label != nil {
				return label[1]
			}
		}
	}
	return ""
}

// labelled returns the process of a label; nil: the caller is none. A goroutine that has lost its label, as by pprof.Do
// with another ctx, is taken for one of the newest process of the only program.
func (gs *gates) labelled(label string) (newest *process, err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if n, err := strconv.Atoi(label); err == nil {
		return gs.launched[n], nil
	}
	if label != "" {
		return nil, nil
	}
	for _, p := range gs.live {
		switch {
		case p.incarnation == 0:
		case newest != nil && newest.Name != p.Name:
			return nil, errors.New("it does not carry the ctx of Run, nor has its goroutine the labels of pprof " +
				"that those of Run have, and there are several programs: http.NewRequestWithContext gives it the ctx")
		default:
			newest = p
		}
	}
	if newest == nil {
		return nil, errRefused // what a dead process does reaches nobody
	}
	return newest, nil
}
