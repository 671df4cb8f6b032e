package tokenizer

// Config placeholder
type Config struct{}

func ReadConfig(dir string) (Config, error) { return Config{}, nil }
