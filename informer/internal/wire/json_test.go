package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/json"
)

var longStrings = map[string]string{"plain": "a", "lines": "\n", "quotes": `"`, "backslashes": `\`, "mixed": "a\n\"\\"}

func TestTheEndOfALongString(t *testing.T) {
	for name, text := range longStrings {
		t.Run(name, func(t *testing.T) {
			value, err := json.Marshal(strings.Repeat(text, 1<<16/len(text)))
			require.NoError(t, err)
			s := jsonScan{}
			require.Equal(t, len(value), s.advance(append(value, ',', '"')))
			require.True(t, s.done)
		})
	}
}

// A value of many lines, such as a script in a ConfigMap, is full of escapes. To find its end takes as long for each
// byte as that of any other.
func BenchmarkTheEndOfALongString(b *testing.B) {
	for name, text := range longStrings {
		b.Run(name, func(b *testing.B) {
			value, err := json.Marshal(strings.Repeat(text, 1<<19/len(text)))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				s := jsonScan{}
				s.advance(value)
			}
		})
	}
}
