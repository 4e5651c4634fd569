package inspect

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
)

// zipped returns lines as the file of a bundle.
func zipped(t testing.TB, lines ...string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, line := range lines {
		_, err := io.WriteString(w, line)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Lines of a small bundle.
const (
	headLine    = `{"bundle":{"version":1}}` + "\n"
	managerLine = `{"manager":{"controllers":[{"name":"web"}]}}` + "\n"
	keysLine    = `{"keys":{"controller":"web","keys":[{"name":"a","state":"Settled"}]}}` + "\n"
	keyLine     = `{"key":{"controller":"web","name":"a","state":"Settled"}}` + "\n"
)

func TestWhatIsNoBundleIsRefused(t *testing.T) {
	whole := bundleOf(t, newSample(10, webName))
	for want, file := range map[string][]byte{
		"the file is empty":                       {},
		"not compressed by gzip":                  []byte("this is a text that is no bundle"),
		"cut off in its first bytes":              whole[:5],
		"it is cut off after line 0":              whole[:40],
		"line 1: this is not a bundle":            zipped(t, managerLine),
		"line 1: invalid character":               zipped(t, "x\n"),
		"the bundle has version 2":                zipped(t, `{"bundle":{"version":2}}`+"\n"),
		"it is cut off after line 1":              zipped(t, headLine),
		"line 2: it comes before the manager":     zipped(t, headLine, keysLine, managerLine),
		"line 2: the bundle ends without a":       zipped(t, headLine, `{"end":{"lines":1}}`+"\n"),
		"line 2: another bundle begins":           zipped(t, headLine, headLine),
		"line 2: it has more than 1048576 values": zipped(t, headLine, strings.Repeat(",", maxCommas+1), "\n"),
	} {
		b, err := ReadBundle(bytes.NewReader(file))
		require.ErrorContains(t, err, want)
		require.Nil(t, b)
	}
	broken := errors.New("the disk is broken")
	_, err := ReadBundle(io.MultiReader(bytes.NewReader(whole[:20]), failingReader{broken}))
	require.ErrorIs(t, err, broken)
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// TestADamagedBundleShowsWhatIsWhole: the error and the pages say what is wrong, and what comes before it is there.
func TestADamagedBundleShowsWhatIsWhole(t *testing.T) {
	end := `{"end":{"lines":4}}` + "\n"
	good := []string{headLine, managerLine, keysLine, keyLine}
	checksum := zipped(t, append(good, end)...)
	checksum[len(checksum)-8]++
	whole := zipped(t, append(good, end)...)
	for want, file := range map[string][]byte{
		"it is cut off after line 4":      zipped(t, good...),
		"cut off after line 4":            zipped(t, append(good, `{"key":{"con`)...),
		"line 5: another manager follows": zipped(t, append(good, managerLine)...),
		"line 5: another bundle begins":   zipped(t, append(good, headLine)...),
		`line 5: the manager has no controller "db"`: zipped(t,
			append(good, `{"key":{"controller":"db"}}`+"\n")...),
		"line 5: unexpected end of JSON":                 zipped(t, append(good, "\n", end)...),
		"line 5: json: cannot unmarshal":                 zipped(t, append(good, `{"key":7}`+"\n")...),
		"was written with 7 lines before this one":       zipped(t, append(good, `{"end":{"lines":7}}`+"\n")...),
		"something follows its last line":                zipped(t, append(good, end, "{}\n")...),
		"bundle: something follows":                      zipped(t, append(good, end, "x")...),
		"after its last line: gzip: invalid checksum":    checksum,
		"after its last line: unexpected EOF":            whole[:len(whole)-3],
		"after its last line: gzip: invalid header":      append(bytes.Clone(whole), "garbage, ten bytes"...),
		"line 5: invalid character '{' after top-level":  zipped(t, append(good, "{} {}\n")...),
		"line 6: the bundle was written with 4 lines be": zipped(t, append(good, keyLine, end)...),
	} {
		b, err := ReadBundle(bytes.NewReader(file))
		require.ErrorContains(t, err, want)
		require.NotNil(t, b, want)
		require.Len(t, b.Keys["web"], 1)
		require.Contains(t, b.Details["web"], reconcile.Key{Name: "a"})
		_, page := do(t, http.MethodGet, answering(t, Options{}, b)+"key?controller=web&name=a", "")
		require.Contains(t, page, "The file is damaged")
	}
	b, err := ReadBundle(bytes.NewReader(whole))
	require.NoError(t, err)
	_, page := do(t, http.MethodGet, answering(t, Options{}, b), "")
	require.NotContains(t, page, "damaged")
}

// TestABundleIsCutOffAnywhere cuts a bundle in many places, and changes a byte in many.
func TestABundleIsCutOffAnywhere(t *testing.T) {
	whole := bundleOf(t, newSample(3, webName))
	keys := 0
	for n := 0; n < len(whole); n += 5 {
		b, err := ReadBundle(bytes.NewReader(whole[:n]))
		require.Error(t, err)
		if b != nil {
			require.GreaterOrEqual(t, len(b.Details["web"]), keys, "the more there is, the more is shown")
			keys = len(b.Details["web"])
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 0x10
		if b, err := ReadBundle(bytes.NewReader(changed)); err == nil {
			require.Len(t, b.Details["web"], 3, "the header of the file has bytes that do not matter")
		}
	}
	require.Equal(t, 3, keys)
}

func TestALaterWriterIsUnderstood(t *testing.T) {
	b, err := ReadBundle(bytes.NewReader(zipped(t, `{"bundle":{"version":1,"later":1}}`+"\n", `{"later":{}}`+"\n",
		managerLine, `{"keys":{"controller":"web","keys":[{"name":"a","state":"Later"},{"name":"b","state":"Stuck"}]}}`+
			"\n", `{"end":{"lines":4}}`+"\n")))
	require.NoError(t, err, "what is not known is ignored")
	_, page := do(t, http.MethodGet, answering(t, Options{}, b)+"keys?controller=web", "")
	require.Contains(t, page, "later <b>1</b>")
	require.Less(t, strings.Index(page, "name=b"), strings.Index(page, "name=a"), "the unknown state comes last")
}

// TestABombIsRefused reads files that are small until they are unpacked.
func TestABombIsRefused(t *testing.T) {
	big := `{"keys":{"controller":"web","keys":[{}` + strings.Repeat(",{}", maxCommas/64) + "]}}\n"
	in := newBundleReader(io.MultiReader(strings.NewReader(headLine+managerLine), &endless{line: big}))
	in.memory = maxMemory - 6<<20
	require.EqualError(t, in.read(), "line 5: with it the bundle takes more than 1024 MiB of memory")
	require.Len(t, in.Keys["web"], 2*(maxCommas/64+1))

	in = newBundleReader(io.MultiReader(strings.NewReader(headLine+managerLine), &endless{line: keyLine}))
	in.rest.N = 1 << 16
	require.EqualError(t, in.read(), "it has more than 1024 MiB, uncompressed")
	in = newBundleReader(io.MultiReader(strings.NewReader(headLine+managerLine), &endless{line: "x"}))
	require.EqualError(t, in.read(), "line 3 has more than 16 MiB")
}

// endless is a file that has a line again and again, without an end.
type endless struct {
	line string
	at   int
}

func (e *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		some := copy(p[n:], e.line[e.at:])
		n, e.at = n+some, (e.at+some)%len(e.line)
	}
	return n, nil
}

// TestMemoryOf compares what a bundle is said to take with what it does take.
func TestMemoryOf(t *testing.T) {
	s := newSample(300, webName)
	var said int
	for _, k := range s.details {
		said += memoryOf(reflect.ValueOf(&k))
	}
	file := bundleOf(t, s)
	before := heapBytes()
	b, err := ReadBundle(bytes.NewReader(file))
	require.NoError(t, err)
	took := int(heapBytes() - before)
	require.InDelta(t, said, took, float64(took)/2)
	runtime.KeepAlive(b)
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// FuzzReadBundle reads lines as they come. What can be read is shown on all pages, and their tags are whole.
func FuzzReadBundle(f *testing.F) {
	f.Add([]byte(headLine + managerLine + keysLine + keyLine + `{"end":{"lines":4}}` + "\n"))
	f.Add([]byte(headLine + `{"manager":{"controllers":[null,{"name":"\u003cb>"}],"informers":[{"namespaces":[{}]}]}}` +
		"\n" +
		`{"keys":{"controller":"","keys":[null,{"state":"é_X","next":"9999-12-31T23:59:59Z"}]}}` + "\n" +
		`{"key":{"runs":[{"writes":[{"error":{}}],"took":-1}],"waits":[{"for":"x","to":"0001-01-01T00:00:01Z"}]}}` +
		"\n"))
	whole, err := gzip.NewReader(bytes.NewReader(bundleOf(f, newSample(2, webName))))
	require.NoError(f, err)
	text, err := io.ReadAll(whole)
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = ReadBundle(bytes.NewReader(text)) // it is hardly ever gzip, and must not panic
		b, err := ReadBundle(bytes.NewReader(zipped(t, string(text))))
		if b == nil {
			require.Error(t, err)
			return
		}
		get := func(page string, query url.Values) {
			for _, suffix := range []string{"", ".json"} {
				w := httptest.NewRecorder()
				newHandler(Options{Unguarded: true}, func(*http.Request) source { return b }).ServeHTTP(w,
					httptest.NewRequest(http.MethodGet, "/"+page+suffix+"?"+query.Encode(), nil))
				require.Equal(t, http.StatusOK, w.Code, w.Body)
				if suffix != "" {
					require.True(t, json.Valid(w.Body.Bytes()))
				}
				require.NotContains(t, w.Body.String(), "ZgotmplZ")
			}
		}
		get("index", nil)
		for i, c := range b.controllers() {
			if i == 3 {
				break
			}
			get("keys", url.Values{"controller": {c}})
			for key := range b.Details[c] {
				get("key", url.Values{"controller": {c}, "namespace": {key.Namespace}, "name": {key.Name}})
				break
			}
		}
	})
}
