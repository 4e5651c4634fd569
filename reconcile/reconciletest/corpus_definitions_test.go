package reconciletest

import (
	_ "embed"
	"io"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	sigsyaml "sigs.k8s.io/yaml"
)

//go:embed testdata/latches.yaml
var latchesYAML []byte

// latches defines latches.corpus.example.com.
var latches = func() string {
	data, err := sigsyaml.YAMLToJSON(latchesYAML)
	if err != nil {
		panic(err)
	}
	return string(data)
}()

// polls repeats a GET until its answer is so, which needs others to act. How many it takes is not written down.
func polls(short string, so func(code int, body string) bool) step {
	return func(p *player) {
		asks := *p
		asks.sent = nil
		require.Eventually(p.t, func() bool {
			resp := asks.do(p.t.Context(), "GET", short, "application/json", "application/json", "")
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && so(resp.StatusCode, string(body))
		}, time.Minute, 20*time.Millisecond, "GET %s", short)
	}
}

func has(code int, short string) step {
	return polls(short, func(is int, _ string) bool { return is == code })
}

func says(short, text string) step {
	return polls(short, func(_ int, body string) bool { return strings.Contains(body, text) })
}

// bare leaves who manages which field out of an answer about a definition: the real server knows the types of its
// fields, and writes the status by itself.
func bare(s step) step {
	return func(p *player) {
		s(p)
		last := &p.log[len(p.log)-1]
		o, ok := last.answer.(map[string]any)
		require.True(p.t, ok)
		if m, ok := o["metadata"].(map[string]any); ok {
			delete(m, "managedFields")
		}
	}
}

// plainly sends a request whose answer is no JSON.
func plainly(method, short string, body string) step {
	return raw(method, short, "application/json", "application/json", body)
}

func defining(definition string) step {
	return bare(request("POST", "crds", "application/json", definition))
}

// definitionsCorpus is about a definition that comes and goes while the server runs.
var definitionsCorpus = []conversation{
	{"a definition that comes and goes", []step{
		plainly("GET", "latches", ""), plainly("POST", "latches", bodyOf("latches", "a", ``)),
		defining(latches), says("crds/latches.corpus.example.com", "InitialNamesAccepted"), has(200, "latches"),
		bare(get("crds/latches.corpus.example.com")), defining(latches),
		post("latches", "a", `"metadata":{"finalizers":["example.com/f"]},"spec":{}`),
		post("latches", "b", `"spec":{"width":8,"depth":9}`), watching("w", "latches?resourceVersion={{a.rv}}"),
		bare(del("crds/latches.corpus.example.com?dryRun=All", ``)),
		bare(del("crds/latches.corpus.example.com", ``)), has(404, "latches/b"), events("w", 3),
		bare(get("crds/latches.corpus.example.com")), post("latches", "c", ``),
		apply("latches/d?fieldManager=x", ``), get("latches/a"), merge("latches/a", `{"spec":{"width":9}}`),
		del("latches", ``), del("latches/d", ``), merge("latches/a", `{"metadata":{"finalizers":null}}`),
		has(404, "crds/latches.corpus.example.com"), has(404, "latches"), plainly("GET", "latches", ""),
		events("w", 2), ends("w"), plainly("POST", "latches", bodyOf("latches", "a", ``)),
		// Once more, with the same name.
		defining(latches), says("crds/latches.corpus.example.com", "InitialNamesAccepted"), has(200, "latches"),
		get("latches"), post("latches", "a", `"spec":{}`), bare(del("crds/latches.corpus.example.com", ``)),
		has(404, "crds/latches.corpus.example.com"), has(404, "latches"), plainly("GET", "latches", "")}},
}
