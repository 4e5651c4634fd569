package writes

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// history keeps the last record.
type history struct{ status.Write }

func (*history) RequestBegins(*http.Request)   {}
func (*history) RequestEnds(*http.Response)    {}
func (*history) Wrote(types.UID, string, bool) {}
func (h *history) Record(w status.Write)       { h.Write = w }

// guesser follows nothing.
type guesser struct{ Debtor }

func (guesser) TargetOf(_ klog.Logger, address string) (Target, bool) {
	return GuessTarget(address), false
}

// answering is a server and its transport.
type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) { return a(req) }

// stream is a body that counts who reads it.
type stream struct{ reads int }

func (s *stream) Read([]byte) (int, error) { s.reads++; return 0, io.EOF }
func (*stream) Close() error               { return nil }

// TestWhatAProxyAnswersIsLeftToTheCaller is about an answer that may be a stream without an end.
func TestWhatAProxyAnswersIsLeftToTheCaller(t *testing.T) {
	past := &history{}
	ctx := context.WithValue(t.Context(), WriterKey{}, &Writer{History: past, Debtor: guesser{}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://host/api/v1/namespaces/a/services/s/proxy/x", http.NoBody)
	require.NoError(t, err)
	body := &stream{}
	resp, err := Track(answering(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusBadGateway, Body: body, Header: http.Header{}}, nil
	})).RoundTrip(req)
	require.NoError(t, err)
	require.Zero(t, body.reads)
	require.Same(t, body, resp.Body)
	require.Equal(t, http.StatusBadGateway, past.Code)
	require.Equal(t, "proxy", past.Subresource)
}
