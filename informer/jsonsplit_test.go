package informer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/json"
)

// A value of many lines, such as a script in a ConfigMap, is full of escapes. To find its end must not take longer than to decode it, however long it is.
func TestTheEndOfAStringIsFoundInOnePass(t *testing.T) {
	for name, text := range map[string]string{"lines": "\n", "quotes": `"`, "backslashes": `\`, "mixed": "a\n\"\\"} {
		t.Run(name, func(t *testing.T) {
			value, err := json.Marshal(strings.Repeat(text, 1<<19/len(text)))
			require.NoError(t, err)
			began := time.Now()
			var decoded string
			require.NoError(t, json.Unmarshal(value, &decoded))
			decoding := time.Since(began)

			fastest := time.Hour
			for range 3 { // as others want the processor, too
				began := time.Now()
				s := jsonScan{}
				require.Equal(t, len(value), s.advance(value))
				require.True(t, s.done)
				fastest = min(fastest, time.Since(began))
			}
			t.Logf("end %s, decoding %s", fastest, decoding)
			require.Less(t, fastest, 20*decoding)
		})
	}
}
