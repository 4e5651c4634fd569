package leaderelection

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leadOnce has a candidate lead, leave words, and return. It returns what the candidate found.
func leadOnce(t *testing.T, e *Elector, words ...string) (found string, waited bool) {
	ctx, cancel := quiet(t)
	defer cancel()
	require.NoError(t, e.Run(ctx, func(context.Context) error {
		found, waited = e.Handover()
		for _, word := range words {
			e.SetHandover(word)
		}
		return nil
	}))
	return found, waited
}

func TestALeaderLeavesWordForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first, second := newCandidate(t, s.link("first")), newCandidate(t, s.link("second"))
		leads := func(e *Elector, finds string, words ...string) {
			t.Helper()
			e.SetHandover("it does not lead yet")
			found, waited := e.Handover()
			require.Empty(t, found, "it does not lead yet")
			require.False(t, waited)
			found, waited = leadOnce(t, e, words...)
			require.Equal(t, finds, found)
			require.False(t, waited)
			require.True(t, isReleased(s.get()))
		}
		leads(first, "", "not yet", "seven")
		leads(second, "seven", "eight")
		leads(first, "eight")
		leads(second, "", "nine", "")
		leads(first, "", strings.Repeat("x", maxText+1))
		leads(second, "", strings.Repeat("x", maxText))
		leads(first, strings.Repeat("x", maxText))
	})
}

// TestAWordIsForTheRecordThatItWasReleasedWith has the Lease change hands, or be changed, behind the back of the word.
func TestAWordIsForTheRecordThatItWasReleasedWith(t *testing.T) {
	for name, change := range map[string]func(*coordinationv1.Lease) *coordinationv1.Lease{
		"a leader that knows nothing of words": func(l *coordinationv1.Lease) *coordinationv1.Lease {
			word := l.Annotations[handoverAnnotation] // client-go's elector keeps the annotations of the Lease
			l = released(acquired(l, l.ObjectMeta, "client-go", 15*time.Second, time.Now()), time.Now())
			l.Annotations = map[string]string{handoverAnnotation: word}
			return l
		},
		"another release of the same term": func(l *coordinationv1.Lease) *coordinationv1.Lease {
			return released(l, time.Now().Add(time.Second))
		},
		"another Lease": func(l *coordinationv1.Lease) *coordinationv1.Lease { l.UID = "another"; return l },
		"a word that cannot be read": func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Annotations[handoverAnnotation] = "seven"
			return l
		},
		"no word": func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Annotations = nil; return l },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				_, _ = leadOnce(t, newCandidate(t, s.link("first")), "seven")
				require.Equal(t, "seven", handoverOf(s.get()))
				s.edit(change)
				found, waited := leadOnce(t, newCandidate(t, s.link("second")))
				require.Empty(t, found)
				require.False(t, waited, "the Lease was released, so nobody has waited")
			})
		})
	}
}

// TestALostTenureLeavesNoWordBehind: what was to be left by a tenure that was lost is not left by a later one.
func TestALostTenureLeavesNoWordBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first, second := newCandidate(t, s.link("first")), newCandidate(t, s.link("second"))
		ctx, cancel := quiet(t)
		defer cancel()
		require.ErrorIs(t, first.Run(ctx, func(ctx context.Context) error {
			s.edit(wipe)
			<-ctx.Done()
			first.SetHandover("old")
			return nil
		}), ErrLost)
		found, waited := leadOnce(t, second, "new")
		require.Empty(t, found)
		require.True(t, waited)
		found, _ = leadOnce(t, first)
		require.Equal(t, "new", found)
		found, _ = leadOnce(t, second)
		require.Empty(t, found)
	})
}

func TestACrashLeavesNoWord(t *testing.T) {
	base := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	base.Annotations = map[string]string{"whose": "theirs"}
	base.Spec = record("a leader", 15*time.Second, 7, time.Now(), time.Now())
	free := withHandover(released(base, time.Now()), tokenOf(base), "seven")
	require.Equal(t, "seven", handoverOf(free))
	taken := acquired(free, metav1.ObjectMeta{}, "the next", 15*time.Second, time.Now())
	require.Equal(t, map[string]string{"whose": "theirs"}, taken.Annotations, "it is the next leader's alone")
}

// TestACandidateThatNeverLeadsPassesTheWordOn: it takes the Lease and is told to end before it works.
func TestACandidateThatNeverLeadsPassesTheWordOn(t *testing.T) {
	for name, trouble := range map[string]func(*linkState){
		"the answer is late": func(s *linkState) { s.back = slowFor("update", 2*time.Second) },
		"the answer is lost": func(s *linkState) { s.lose = func(verb string) bool { return verb == "update" } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				_, _ = leadOnce(t, newCandidate(t, s.link("first")), "seven")
				l := s.link("second")
				l.set(trouble)
				second := start(t, newCandidate(t, l), 0)
				settle(time.Second)
				require.Equal(t, second.Identity(), value(s.get().Spec.HolderIdentity), "it has taken the Lease")
				l.set(func(s *linkState) { *s = linkState{} })
				require.NoError(t, second.stop())
				require.Empty(t, second.worked())
				found, _ := leadOnce(t, newCandidate(t, s.link("third")))
				require.Equal(t, "seven", found)
			})
		})
	}
}
