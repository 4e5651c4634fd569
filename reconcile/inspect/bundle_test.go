package inspect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

func bundleOf(t testing.TB, s source) []byte {
	var b bytes.Buffer
	require.NoError(t, writeBundle(t.Context(), &b, s))
	return b.Bytes()
}

func TestBundle(t *testing.T) {
	s := newSample(1200, webName)
	b, err := ReadBundle(bytes.NewReader(bundleOf(t, s)))
	require.NoError(t, err)
	require.Equal(t, s.m, b.Manager)
	require.Equal(t, sampleTime, b.Created)
	require.ElementsMatch(t, s.list, b.Keys["web"])
	for key, k := range s.details {
		require.Equal(t, k, b.Details["web"][key])
	}
	require.Contains(t, b.Program, "thermostat")

	root := answering(t, Options{Actions: true}, b)
	for path, want := range map[string]string{"": "Recorded <time>2026-03-14 09:26:53 UTC",
		"keys?controller=web":                              "1,200",
		"key?controller=web&namespace=default&name=web-18": "created pod"} {
		resp, page := do(t, http.MethodGet, root+path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		require.Contains(t, page, want)
		require.NotContains(t, page, "data-events", "a bundle does not change")
		require.NotContains(t, page, `action="action"`)
	}
	resp, _ := do(t, http.MethodGet, root+"events?page=index", "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestTheBundleIsThereToDownload(t *testing.T) {
	s := newSample(10, webName)
	resp, text := do(t, http.MethodGet, answering(t, Options{}, s)+"bundle", "")
	require.Equal(t, "attachment; filename=inspect-20260314-092653.jsonl.gz", resp.Header.Get("Content-Disposition"))
	b, err := ReadBundle(strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, b.Keys["web"], 10)
}

func TestABundleHasTheUrgentKeysInFull(t *testing.T) {
	list := newSample(maxDetails+500, webName).list
	for i := range list {
		list[i].Runs = 0
	}
	list[maxDetails+499].State = status.KeyStuck
	list[maxDetails+498].Runs = 1
	kept := detailed(list)
	require.Len(t, kept, maxDetails)
	require.Contains(t, kept, list[maxDetails+499])
	require.Contains(t, kept, list[maxDetails+498])
}

func TestWritingABundleEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, writeBundle(ctx, io.Discard, newSample(10, webName)), context.Canceled)
	full := errors.New("no space")
	require.ErrorIs(t, writeBundle(t.Context(), failing{full}, newSample(3000, webName)), full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
