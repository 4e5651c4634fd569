package debts

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// answersFile has what a real API server answers to writes, and what watches show then. TestRecordAnswers makes it.
const answersFile = "testdata/answers.json"

// conversation is a sequence of requests about a few objects. Before the first step none of them exists.
//
// Versions and UIDs are of the conversation: a version is a decimal number from 1 on, in the server's order over all
// resources, and a UID is "uid-1", "uid-2" and so on, as they first appear. The namespace is "ns". A deletionTimestamp
// is the time of the deletion, which is midnight for all objects, and the grace period. Bodies lack the specification
// of a workload. That of a PUT has the metadata only; the rest of what was sent is the object as it was.
type conversation struct {
	Name  string         `json:"name"`
	Steps []recordedStep `json:"steps"`
}

// recordedStep is a request with its answer, and the events that watches show until everything has come to rest.
type recordedStep struct {
	Name        string          `json:"name"`
	Method      string          `json:"method"`
	Path        string          `json:"path"`
	Query       string          `json:"query,omitempty"`
	ContentType string          `json:"contentType,omitempty"`
	Body        json.RawMessage `json:"body,omitempty"`
	Code        int             `json:"code"`
	Answer      json.RawMessage `json:"answer"` // without the fields that say nothing of what has been written
	Events      []recordedEvent `json:"events,omitempty"`
}

// recordedEvent is an event of a watch of a collection. All events of a step are in the order of their versions.
type recordedEvent struct {
	Resource string           `json:"resource"`
	Selected bool             `json:"selected,omitempty"` // the watch has the label selector in=yes
	Type     string           `json:"type"`
	Metadata recordedMetadata `json:"metadata"`
}

// recordedMetadata is what an answer or an event has of an object's metadata.
type recordedMetadata struct {
	Name                       string            `json:"name,omitempty"`
	Namespace                  string            `json:"namespace,omitempty"`
	UID                        string            `json:"uid,omitempty"`
	ResourceVersion            string            `json:"resourceVersion,omitempty"`
	Generation                 int64             `json:"generation,omitempty"`
	DeletionTimestamp          string            `json:"deletionTimestamp,omitempty"`
	DeletionGracePeriodSeconds *int64            `json:"deletionGracePeriodSeconds,omitempty"`
	Finalizers                 []string          `json:"finalizers,omitempty"`
	Labels                     map[string]string `json:"labels,omitempty"`
}

// recordedAnswers reads the file.
func recordedAnswers(t testing.TB) (all []conversation) {
	data, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &all))
	return all
}

// formatAnswers makes the text of the file: a line for each request, and one for each event.
func formatAnswers(t testing.TB, all []conversation) string {
	var text bytes.Buffer
	line := func(indent string, v any) {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		text.WriteString(indent)
		text.Write(data)
	}
	for i, c := range all {
		text.WriteString(map[bool]string{true: "[{\"name\": ", false: "}, {\"name\": "}[i == 0])
		line("", c.Name)
		text.WriteString(", \"steps\": [\n")
		for j, s := range c.Steps {
			events := s.Events
			s.Events = nil
			line("\t", s)
			if len(events) > 0 {
				text.Truncate(text.Len() - 1)
				text.WriteString(",\"events\":[\n")
				for k, e := range events {
					line("\t\t", e)
					text.WriteString(map[bool]string{true: "]}", false: ",\n"}[k == len(events)-1])
				}
			}
			text.WriteString(map[bool]string{true: "]\n", false: ",\n"}[j == len(c.Steps)-1])
		}
	}
	return text.String() + "}]\n"
}
