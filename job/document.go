package job

// DecodeStrict reads a document of at most maxBytes, one JSON object, into the
// struct that into points to, as ParseSpec reads a job: unknown and repeated
// fields, null, wrong types and text that is not UTF-8 are refused. The error
// is a *FieldError, whose text never repeats the input.
func DecodeStrict(data []byte, into any, maxBytes int) error {
	return decodeStrict(data, into, maxBytes)
}
