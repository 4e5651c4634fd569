package load

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is what the histories of all keys, and the watch, have come to.
type Verdict struct {
	Keys, Operations int
	Unknown          int // writes without an answer
	Events           int // of the watch
	// Compacted counts the revisions that the watch could not have, as etcd had compacted them.
	Compacted int64
	Took      time.Duration
	// Wrong says what no correct etcd does. A history that could not be judged in time is wrong, too.
	Wrong []string
}

func (v Verdict) String() string {
	text := "linearizable"
	if len(v.Wrong) > 0 {
		text = "wrong"
	}
	return fmt.Sprintf("judged in %.1f s: %d requests on %d keys, %d writes without an answer, %d events of the "+
		"watch: %s",
		v.Took.Seconds(), v.Operations, v.Keys, v.Unknown, v.Events, text)
}

// Judge judges what has happened until [Load.Stop]: the history of each key must be linearizable, and the watch must
// have all writes once, in their order. It takes limit at most. Where a history is not linearizable, Wrong names a page
// in the folder for temporary files that draws it.
func (l *Load) Judge(ctx context.Context, limit time.Duration) Verdict {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	v := Verdict{}
	var keys []*key
	for _, r := range l.registers {
		keys = append(keys, r.all()...)
	}
	for _, k := range keys {
		history := k.operations()
		v.Keys, v.Operations = v.Keys+1, v.Operations+len(history)
		for _, o := range history {
			if o.outcome == unknown {
				v.Unknown++
			}
		}
		if wrong := judgeHistory(ctx, k.name, history); wrong != "" {
			v.Wrong = append(v.Wrong, wrong)
		}
	}
	seen := l.watcher.result()
	v.Events, v.Compacted = len(seen.events), seen.compacted()
	v.Wrong = append(v.Wrong, judgeEvents(seen, keys)...)
	v.Took = time.Since(began)
	return v
}

// judgeHistory returns why the history of a key is wrong, or an empty string.
func judgeHistory(ctx context.Context, name string, history []operation) string {
	limit := time.Minute
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end)
	}
	if limit <= 0 || ctx.Err() != nil {
		return name + ": there was no time to judge its history"
	}
	requests := linear(history)
	switch porcupine.CheckOperationsTimeout(model, requests, limit) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("%s: its history of %d requests could not be judged in %v", name, len(requests), limit)
	}
	wrong := fmt.Sprintf("%s: its history of %d requests is not linearizable", name, len(requests))
	_, info := porcupine.CheckOperationsVerbose(model, requests, limit)
	file, err := os.CreateTemp("", "history-*.html")
	if err != nil {
		return wrong
	}
	defer file.Close()
	if porcupine.Visualize(model, info, file) != nil {
		return wrong
	}
	return wrong + "; " + file.Name() + " draws it"
}

// state is what a key has.
type state struct{ number, revision int64 }

// model is a key that is written only if it has the expected revision.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		now, o := before.(state), input.(operation)
		switch {
		case !o.write:
			return now == state{o.number, o.revision}, now
		case o.outcome == refused:
			return now.revision != o.expected, now
		}
		return now.revision == o.expected && o.revision > now.revision, state{o.number, o.revision}
	},
	DescribeOperation: func(input, _ any) string { return input.(operation).String() },
	DescribeState:     func(s any) string { return fmt.Sprintf("%d@%d", s.(state).number, s.(state).revision) },
}

func (o operation) String() string {
	switch {
	case !o.write:
		return fmt.Sprintf("read %d@%d", o.number, o.revision)
	case o.outcome == refused:
		return fmt.Sprintf("write %d if @%d: refused", o.number, o.expected)
	case o.outcome == unknown:
		return fmt.Sprintf("write %d if @%d: no answer", o.number, o.expected)
	}
	return fmt.Sprintf("write %d if @%d: @%d", o.number, o.expected, o.revision)
}

// linear returns the history as the checker wants it.
//
// Each number is written once to its key. So a write without an answer was applied if a read has returned its number,
// and the read says its revision; it may have been applied at any time before that. If no read has returned its number,
// it changes nothing that was seen, but for this: a later write may have been refused because of it. So such refusals
// are left out.
func linear(history []operation) (requests []porcupine.Operation) {
	read := map[int64]operation{} // the first read of each number to end
	for _, o := range history {
		if first, ok := read[o.number]; !o.write && (!ok || o.back < first.back) {
			read[o.number] = o
		}
	}
	unseen := slices.ContainsFunc(history, func(o operation) bool {
		_, seen := read[o.number]
		return o.outcome == unknown && !seen
	})
	for _, o := range history {
		back := int64(o.back)
		if o.outcome == unknown {
			seen, ok := read[o.number]
			if !ok {
				continue
			}
			o.outcome, o.revision, back = applied, seen.revision, math.MaxInt64
		}
		if o.outcome == refused && unseen {
			continue
		}
		requests = append(requests, porcupine.Operation{ClientId: o.client, Input: o, Call: int64(o.call),
			Return: back})
	}
	slices.SortStableFunc(requests, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return requests
}
