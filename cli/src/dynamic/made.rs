//! Small ELF files, made for tests.

use elf::abi;

/// A file as one segment at address 0, with these entries in its dynamic section.
#[derive(Clone, Debug, Default)]
pub struct Made {
    pub interpreter: Option<&'static str>,
    pub soname: Option<&'static str>,
    pub needed: Vec<&'static str>,
    pub rpath: Option<&'static str>,
    pub runpath: Option<&'static str>,
    pub flags: u64,
    /// A wrong address of its names, instead of the right one.
    pub names_at: Option<u64>,
}

impl Made {
    pub fn program(interpreter: &'static str) -> Self {
        Made {
            interpreter: Some(interpreter),
            ..Made::default()
        }
    }

    pub fn library(soname: &'static str) -> Self {
        Made {
            soname: Some(soname),
            ..Made::default()
        }
    }

    pub fn needs(mut self, names: &[&'static str]) -> Self {
        self.needed = names.to_vec();
        self
    }

    pub fn with_runpath(mut self, path: &'static str) -> Self {
        self.runpath = Some(path);
        self
    }

    pub fn with_rpath(mut self, path: &'static str) -> Self {
        self.rpath = Some(path);
        self
    }

    pub fn file(&self) -> Vec<u8> {
        let mut texts = vec![0];
        let mut text = |name: &str| {
            let at = texts.len() as u64;
            texts.extend_from_slice(name.as_bytes());
            texts.push(0);
            at
        };
        let mut entries: Vec<(i64, u64)> = Vec::new();
        entries.extend(self.needed.iter().map(|name| (abi::DT_NEEDED, text(name))));
        for (tag, name) in [
            (abi::DT_SONAME, self.soname),
            (abi::DT_RPATH, self.rpath),
            (abi::DT_RUNPATH, self.runpath),
        ] {
            entries.extend(name.map(|name| (tag, text(name))));
        }
        entries.push((abi::DT_FLAGS_1, self.flags));
        let interpreter = self
            .interpreter
            .map_or(Vec::new(), |path| [path.as_bytes(), b"\0"].concat());

        let header_count = 3 - usize::from(interpreter.is_empty());
        let interpreter_at = 64 + header_count * 56;
        let texts_at = interpreter_at + interpreter.len();
        let dynamic_at = (texts_at + texts.len()).next_multiple_of(8);
        let names_at = self.names_at.unwrap_or(texts_at as u64);
        entries.extend([
            (abi::DT_STRTAB, names_at),
            (abi::DT_STRSZ, texts.len() as u64),
            (abi::DT_NULL, 0),
        ]);
        let dynamic_length = entries.len() * 16;
        let length = dynamic_at + dynamic_length;

        let mut file = Vec::new();
        file.extend_from_slice(&abi::ELFMAGIC);
        file.extend_from_slice(&[2, 1, 1]);
        file.resize(16, 0);
        file.extend_from_slice(&abi::ET_DYN.to_le_bytes());
        file.extend_from_slice(&abi::EM_X86_64.to_le_bytes());
        file.extend_from_slice(&1_u32.to_le_bytes());
        for word in [0_u64, 64, 0] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&0_u32.to_le_bytes());
        for half in [64_u16, 56, header_count as u16, 64, 0, 0] {
            file.extend_from_slice(&half.to_le_bytes());
        }
        let mut header = |kind: u32, at: usize, length: usize| {
            file.extend_from_slice(&kind.to_le_bytes());
            file.extend_from_slice(&abi::PF_R.to_le_bytes());
            let (at, length) = (at as u64, length as u64);
            for word in [at, at, at, length, length, 1] {
                file.extend_from_slice(&word.to_le_bytes());
            }
        };
        if !interpreter.is_empty() {
            header(abi::PT_INTERP, interpreter_at, interpreter.len());
        }
        header(abi::PT_LOAD, 0, length);
        header(abi::PT_DYNAMIC, dynamic_at, dynamic_length);
        file.extend_from_slice(&interpreter);
        file.extend_from_slice(&texts);
        file.resize(dynamic_at, 0);
        for (tag, value) in entries {
            file.extend_from_slice(&tag.to_le_bytes());
            file.extend_from_slice(&value.to_le_bytes());
        }
        file
    }
}
