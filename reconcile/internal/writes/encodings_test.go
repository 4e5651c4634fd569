package writes

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func encodeJSON(t *testing.T, o runtime.Object) []byte {
	b, err := json.Marshal(o)
	require.NoError(t, err)
	return b
}

func encodeProtobuf(t *testing.T, o runtime.Object) []byte {
	var b bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b))
	return b.Bytes()
}

func encodeCBOR(t *testing.T, o runtime.Object) []byte {
	var b bytes.Buffer
	require.NoError(t, cbor.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b))
	return b.Bytes()
}
