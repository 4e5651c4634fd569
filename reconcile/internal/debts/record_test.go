package debts

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// The record of a write has the answer, or the error, and the name that the answer tells if the request had none.
func TestTheRecordOfAWriteHasItsOutcome(t *testing.T) {
	const pods = "https://server/api/v1/namespaces/a/pods"
	refusal := func(name string) answering {
		return answering{code: 409, object: &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonConflict,
			Details: &metav1.StatusDetails{Name: name}}}
	}
	for name, test := range map[string]struct {
		method, url string
		answer      http.RoundTripper
		code        int
		error, name string
	}{
		"it is done":            {"POST", pods, answering{code: 201, object: podCalled("p")}, 201, "", "p"},
		"a creation is refused": {"POST", pods, refusal("web-x"), 409, "409 Conflict", "web-x"},
		"an update is refused":  {"PUT", pods + "/p", refusal("p-as-the-server-says"), 409, "409 Conflict", "p"},
		"there is no answer": {"PUT", pods + "/p", answering{err: io.ErrUnexpectedEOF}, 0,
			"an error of type *errors.errorString", "p"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pods)
			b.send(test.method, test.url, nil, test.answer)
			w := b.latest
			require.Equal(t, test.code, w.Code)
			require.Equal(t, test.name, w.Name)
			if test.error == "" {
				require.Nil(t, w.Error)
				return
			}
			require.NotNil(t, w.Error)
			require.Contains(t, w.Error.String(), test.error)
		})
	}
}

// What a patch changes is read from its body, unless that is long.
func TestTheBodyOfAPatchIsReadIfItIsShort(t *testing.T) {
	const pod = "https://server/api/v1/namespaces/a/pods/p"
	const tooLong = "the body is longer than 64 KiB"
	for length, unknown := range map[int]string{100: "", maxBody: "", maxBody + 1: tooLong, 2<<20 + 1: tooLong} {
		for _, told := range []bool{true, false} { // whether the request says how long it is
			body := []byte(`{"spec":{"x":""}}`)
			body = slices.Insert(body, len(body)-3, bytes.Repeat([]byte("x"), length-len(body))...)
			b := newBench(t, pod)
			req, err := http.NewRequestWithContext(b.ctx, "PATCH", pod, bytes.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/merge-patch+json")
			if !told {
				req.ContentLength = -1
			}
			_, err = writes.Track(answering{code: 200, object: podCalled("p")}).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, unknown, b.latest.PathsUnknown, "%d, %t", length, told)
			if unknown == "" {
				require.Equal(t, []string{"spec.x"}, b.latest.Paths)
			}
		}
	}
}
